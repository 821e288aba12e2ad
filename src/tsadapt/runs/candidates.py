"""The candidates of a run: predictions at chosen steps, kept for validators, which see no target label."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from safetensors.numpy import load_file, save

from tsadapt.config import RunConfig
from tsadapt.data.image_loader import grouped, image_pass, workers_here
from tsadapt.data.images import Images
from tsadapt.data.loader import mixed
from tsadapt.data.reading import oddity, reading
from tsadapt.data.transforms import evaluation_transform
from tsadapt.data.types import Domain, Roles
from tsadapt.errors import UserError
from tsadapt.files import write_atomically
from tsadapt.models.normalisation import batch_statistics
from tsadapt.runs.folder import RunFolder
from tsadapt.runs.model import IMAGES_AT_ONCE, ROWS_AT_ONCE, Predicted, TrainedModel
from tsadapt.runs.records import Records
from tsadapt.selection.logits import FactoredLogits, Logits
from tsadapt.selection.mixval import mix
from tsadapt.selection.predictions import Mixed, Predictions
from tsadapt.selection.select import choose
from tsadapt.selection.validators import scores_of
from tsadapt.training.setup import Task
from tsadapt.training.trainer import Trainer

__all__ = ["Candidates", "candidate_steps", "kept_source_rows", "mixtures", "trained_model"]

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
    count = min(config.candidates, steps)  # as many as there are steps are all of them
    return sorted({max(round(steps * k / count), 1) for k in range(1, count + 1)})


def kept_source_rows(rows: int, seed: int) -> np.ndarray:
    """Which of the source's training rows have their features among the saved predictions of a run with this seed."""
    return _some_rows(rows, mixed(seed, 9))


def _some_rows(rows: int, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).permutation(rows)[:MOST_SOURCE_ROWS])


def trained_model(task: Task, trainer: Trainer, run: RunFolder, quiet: bool) -> TrainedModel:
    """The network of a run that is being trained, as one that can be asked."""
    return TrainedModel(
        trainer.model, task.classes, task.architecture, task.columns, task.preprocessing, trainer.device,
        task.config.workers, quiet, run, roles=Roles(task.config.id_column, task.config.label_column),
    )  # fmt: skip


class Candidates:
    """Takes the candidates of a run as they come; with more than one, scores each, and keeps its weights."""

    def __init__(self, task: Task, trainer: Trainer, run: RunFolder, quiet: bool) -> None:
        self.task, self.trainer, self.run = task, trainer, run
        self.steps = candidate_steps(task.config)
        self.model = trained_model(task, trainer, run, quiet)
        self.records = Records(run.scores_file, trainer.at) if len(self.steps) > 1 else None
        self._step, self._known = 0, dict[int, Predicted]()

    def predict(self, domain: Domain) -> Predicted:
        """Predictions for a domain at this step; computed once per step and domain."""
        if self.trainer.at != self._step:
            self._step, self._known = self.trainer.at, {}
        key = id(domain.x)
        if key not in self._known:
            self._known[key] = self.model.forward(domain)
        return self._known[key]

    def as_trained(self, domain: Domain) -> Predicted:
        """Predictions of the network as training left it, outside of `finished`."""
        if self.trainer.objective.method.target_statistics:
            return self.model.forward(domain)
        return self.predict(domain)

    @contextmanager
    def finished(self) -> Iterator[None]:
        """The network as the method would leave it if training ended at this step; as it was, afterwards."""
        if not self.trainer.objective.method.target_statistics:
            yield
            return
        with batch_statistics(self.model.network):
            self.model.normalise_by(self.task.target.train)
            yield

    def take(self) -> None:
        """Keep the predictions of this step."""
        self.run.check_there()
        made, task, at = self._predictions(), self.task, self.trainer.at
        if self.records is not None:
            self.records.append({"step": at, **scores_of(made)})
            if task.target.test is not task.target.train:
                logits = self.predict(task.target.test).logits
                parts = logits.factors if isinstance(logits, FactoredLogits) else {"logits": logits}
                write_atomically(self.run.test_logits_file(at), save(parts))
            if at != self.steps[-1]:
                self.model.save(self.run.candidate(at))
        write_atomically(self.run.predictions_file(at), made.packed())  # last: it says that all is there

    def choose(self) -> tuple[int, str]:
        """The step that the consensus of validators chooses, and why."""
        pool = [Predictions.read(self.run.predictions_file(step)) for step in self.steps]
        try:
            choice = choose(pool)
        except UserError as error:  # all look collapsed, but there is no source-only here to compare with
            return self.steps[-1], f"the last step: {error}"
        return self.steps[choice.chosen], choice.why

    def on_test(self, step: int, last: Predicted) -> Predicted:
        """Predictions of a step's candidate for the target's test rows, in the form of the `last` ones."""
        path = self.run.test_logits_file(step)
        kept = self.run.predictions_file(step)
        logits: Logits
        if path.exists():
            with reading(str(path), "logits that fit wrote"):
                if what := oddity(path):
                    raise ValueError(f"it is {what}")
                parts = load_file(path)
                logits = parts["logits"] if "logits" in parts else FactoredLogits(**parts)
        else:
            logits = Predictions.read(kept).logits_t
        return replace(last, features=last.features[:, :0], logits=logits)

    def close(self) -> None:
        """Close the records."""
        if self.records is not None:
            self.records.close()

    def _predictions(self) -> Predictions:
        task, trainer = self.task, self.trainer
        on_target, on_source = self.predict(task.target.train), self._on_source(mixed(task.config.seed, 9))
        held = None if task.held is None else self.predict(task.held)
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
            weight=np.stack([layer.weight.detach().cpu().numpy() for layer in trainer.model.linear_layers]),
            mixed=mixtures(self.model, task.target.train, on_target),
        )

    def _on_source(self, seed: int) -> np.ndarray:
        """Features of the source's training rows, or of some of them; none where there is no source."""
        if self.task.start is not None:
            return np.zeros((0, self.trainer.model.dim), dtype=np.float32)
        source = self.task.source.train
        rows = _some_rows(len(source), seed)
        if self.task.source.test is source or len(rows) == len(source):
            features = self.predict(source).features
            kept: np.ndarray = features[rows[rows < len(features)]]
            return kept
        if not hasattr(self, "_some_source"):
            self._some_source = source.keep(rows.tolist())
        return self.predict(self._some_source).features


def mixtures(model: TrainedModel, domain: Domain, predicted: Predicted) -> Mixed:
    """Mixtures of target rows, forwarded: of pixels, or of features."""
    rows, files = np.asarray(predicted.rows), not isinstance(domain.x, torch.Tensor)
    at_once = IMAGES_AT_ONCE if files else ROWS_AT_ONCE

    def forward(a: np.ndarray, b: np.ndarray, share: float) -> Logits:
        if not len(a):
            return predicted.logits[:0]
        needed = np.unique(np.concatenate([rows[a], rows[b]]))
        x = _inputs(model, domain, needed)
        x = x if x.dtype in (torch.float32, torch.float64) else x.float()
        at_a, at_b = (torch.from_numpy(np.searchsorted(needed, rows[part])) for part in (a, b))
        outputs = model.collector(len(a))
        for i, j in zip(torch.split(at_a, at_once), torch.split(at_b, at_once), strict=True):
            outputs.add(share * x[i] + (1 - share) * x[j])
        return outputs.arrays()[1]

    return mix(predicted.guess, forward, FILE_PAIRS if files else PAIRS)


def _inputs(model: TrainedModel, domain: Domain, rows: np.ndarray) -> torch.Tensor:
    if not isinstance(domain.x, Images):
        return domain.x[torch.from_numpy(rows)]
    assert model.preprocessing is not None
    framing = model.preprocessing.framing
    view, at_least = evaluation_transform(framing), 2 * framing.resize
    images, count = domain.x.keep(rows.tolist()), workers_here(model.workers, len(rows))
    return torch.cat([some.x for some in image_pass(images, grouped(range(len(rows)), 16), view, at_least, count)])
