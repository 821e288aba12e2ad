"""The candidates of a run: what the network says at chosen steps, kept for validators, which see no target label."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save

from tsadapt.config import RunConfig
from tsadapt.data.image_loader import grouped, image_pass, workers_here
from tsadapt.data.images import Images
from tsadapt.data.loader import mixed
from tsadapt.data.transforms import evaluation_transform
from tsadapt.data.types import Domain
from tsadapt.errors import UserError
from tsadapt.files import write_atomically
from tsadapt.models.classifier import Classifier
from tsadapt.models.preprocessing import Eyes
from tsadapt.runs.evaluate import IMAGES_AT_ONCE, ROWS_AT_ONCE, Predicted, predict_rows
from tsadapt.runs.model import SavedModel, candidate_folder, save_model
from tsadapt.runs.records import Records
from tsadapt.selection.mixval import mix
from tsadapt.selection.predictions import Mixed, Predictions
from tsadapt.selection.select import choose
from tsadapt.selection.validators import scores_of
from tsadapt.training.setup import Task
from tsadapt.training.trainer import Training

__all__ = ["Candidates", "candidate_steps", "predictions_file"]

MOST_SOURCE_ROWS = 5000
"""Rows of the source (train) that are kept: enough to tell the domains apart."""

PAIRS, FILE_PAIRS = 2000, 256
"""Pairs of target rows that are mixed; fewer where images have to be decoded for it."""


def candidate_steps(config: RunConfig) -> list[int]:
    """The steps at which a run is a candidate: evenly spaced, the last one included.

    >>> candidate_steps(RunConfig("a", "b", steps=10, candidates=3))
    [3, 7, 10]
    """
    steps = config.steps or 0
    return sorted({max(round(steps * k / config.candidates), 1) for k in range(1, config.candidates + 1)})


def predictions_file(out: Path, step: int) -> Path:
    """Where a run keeps the predictions of a step."""
    return out / "predictions" / f"step-{step:09d}.npz"


class Candidates:
    """Takes the candidates of a run as they come; with more than one, scores each, and keeps its weights."""

    def __init__(self, task: Task, out: Path, upto: int, quiet: bool) -> None:
        self.task, self.out, self.quiet = task, out, quiet
        self.steps = candidate_steps(task.config)
        self.records = Records(out / "predictions" / "scores.jsonl", upto) if len(self.steps) > 1 else None
        self._step, self._seen = 0, dict[int, Predicted]()

    def look(self, training: Training, domain: Domain) -> Predicted:
        """What the network says of a domain now; the same domain is passed over once."""
        if training.at != self._step:
            self._step, self._seen = training.at, {}
        key = id(domain.x)
        if key not in self._seen:
            task = self.task
            self._seen[key] = predict_rows(
                training.model, domain, training.device, task.eyes, task.config.workers, self.quiet
            )
        return self._seen[key]

    def take(self, training: Training) -> None:
        """Keep what the network says at this step."""
        made, task = self._predictions(training), self.task
        if self.records is not None:
            self.records.append({"step": training.at, **scores_of(made)})
            if task.target.test is not task.target.train:
                logits = self.look(training, task.target.test).logits
                write_atomically(self._test_logits(training.at), save({"logits": logits}))
            if training.at != self.steps[-1]:
                columns = task.source.train.columns
                saved = SavedModel(training.model, task.classes, task.architecture, columns, task.eyes)
                save_model(candidate_folder(self.out, training.at), saved)
        write_atomically(predictions_file(self.out, training.at), made.packed())  # last: it says that all is there

    def choose(self) -> tuple[int, str]:
        """The step that the consensus of validators chooses, and why."""
        pool = [Predictions.read(predictions_file(self.out, step)) for step in self.steps]
        try:
            choice = choose(pool)
        except UserError as error:  # all look collapsed, but there is no source-only here to compare with
            return self.steps[-1], f"the last step: {error}"
        return self.steps[choice.chosen], choice.why

    def on_test(self, step: int, last: Predicted) -> Predicted:
        """What the candidate of a step said of the target's test rows, given what was said `last`."""
        path = self._test_logits(step)
        logits = (
            load_file(path)["logits"] if path.exists() else Predictions.read(predictions_file(self.out, step)).logits_t
        )
        return replace(last, features=last.features[:, :0], logits=logits)

    def close(self) -> None:
        """Close the records."""
        if self.records is not None:
            self.records.close()

    def _test_logits(self, step: int) -> Path:
        return self.out / "predictions" / f"test-{step:09d}.safetensors"

    def _predictions(self, training: Training) -> Predictions:
        task, seed = self.task, task_seed(self.task.config)
        on_target, on_source = self.look(training, task.target.train), self._on_source(training, seed)
        held = None if task.held is None else self.look(training, task.held)
        labels = np.zeros(0, dtype=np.int64)
        if held is not None and task.held is not None and task.held.y is not None:
            labels = task.held.y.numpy()[held.rows]
        return Predictions(
            features_s=on_source,
            features_v=on_target.features[:0] if held is None else held.features,
            logits_v=on_target.logits[:0] if held is None else held.logits,
            labels_v=labels,
            features_t=on_target.features,
            logits_t=on_target.logits,
            weight=np.stack([layer.weight.detach().cpu().numpy() for layer in training.model.linear_layers]),
            mixed=_mixed(training.model, task.target.train, on_target, training.device, task.eyes, task.config.workers),
        )

    def _on_source(self, training: Training, seed: int) -> np.ndarray:
        """Features of the source's training rows, or of some of them."""
        source = self.task.source.train
        rows = np.sort(np.random.default_rng(seed).permutation(len(source))[:MOST_SOURCE_ROWS])
        if self.task.source.test is source or len(rows) == len(source):
            features = self.look(training, source).features
            return features[rows[rows < len(features)]]
        if not hasattr(self, "_some_source"):
            self._some_source = source.keep(rows.tolist())
        return self.look(training, self._some_source).features


def task_seed(config: RunConfig) -> int:
    """A seed for what is drawn of a run's predictions."""
    return mixed(config.seed, 9)


@torch.no_grad()
def _mixed(
    model: Classifier, domain: Domain, seen: Predicted, device: torch.device, eyes: Eyes | None, workers: int | None
) -> Mixed:
    """Mixtures of target rows, forwarded: of pixels, or of features."""
    rows, files = np.asarray(seen.rows), isinstance(domain.x, Images)
    at_once = IMAGES_AT_ONCE if files else ROWS_AT_ONCE

    def forward(a: np.ndarray, b: np.ndarray, share: float) -> np.ndarray:
        if not len(a):
            return seen.logits[:0]
        needed = np.unique(np.concatenate([rows[a], rows[b]]))
        x = _inputs(domain, needed, eyes, workers)
        at_a, at_b = (torch.from_numpy(np.searchsorted(needed, rows[part])) for part in (a, b))
        logits = [
            model((share * x[i].float() + (1 - share) * x[j].float()).to(device))[1].float().cpu()
            for i, j in zip(torch.split(at_a, at_once), torch.split(at_b, at_once), strict=True)
        ]
        return torch.cat(logits).numpy()

    model.eval()
    return mix(seen.logits.argmax(1), forward, FILE_PAIRS if files else PAIRS)


def _inputs(domain: Domain, rows: np.ndarray, eyes: Eyes | None, workers: int | None) -> torch.Tensor:
    if not isinstance(domain.x, Images):
        return domain.x[torch.from_numpy(rows)]
    assert eyes is not None
    view, at_least = evaluation_transform(eyes.framing), 2 * eyes.framing.resize
    images, count = domain.x.keep(rows.tolist()), workers_here(workers, len(rows))
    return torch.cat([some.x for some in image_pass(images, grouped(range(len(rows)), 16), view, at_least, count)])
