"""A run as a folder: trained, resumed or found done; evaluated at its end."""

import contextlib
import json
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tsadapt.config import RunConfig
from tsadapt.data.loader import mixed
from tsadapt.data.types import Domain
from tsadapt.errors import UserError
from tsadapt.files import number, write_json
from tsadapt.models.build import build
from tsadapt.progress import StepProgress
from tsadapt.runs import checkpoint
from tsadapt.runs.candidates import Candidates, predictions_file
from tsadapt.runs.evaluate import Predicted, score
from tsadapt.runs.folder import check_place, claim, held
from tsadapt.runs.kept_memory import keep_memory_of, save_memory
from tsadapt.runs.model import SavedModel, save_model
from tsadapt.runs.records import Records
from tsadapt.selection.density import proxy_a_distance
from tsadapt.selection.select import CONSENSUS
from tsadapt.training.runtime import keep_freed_memory
from tsadapt.training.setup import Task, make_task, uneven
from tsadapt.training.signals import Stop, stop_signals
from tsadapt.training.trainer import NotFiniteError, Training

__all__ = ["Interrupted", "fit", "make_training", "versions"]


class Interrupted(Exception):  # noqa: N818 (nothing went wrong)
    """The user stopped the run; its checkpoint is written."""

    def __init__(self, step: int, out: Path) -> None:
        super().__init__(f"stopped at step {step}; the same command goes on from there ({out})")
        self.step = step


def fit(
    config: RunConfig,
    out: Path | None = None,
    *,
    overwrite: bool = False,
    quiet: bool = False,
    tensorboard: bool = False,
    keep_memory: bool = False,
    watch: Callable[[Training], None] | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Train what the config says into the folder `out` (runs/HASH unless told); the folder, and its metrics.

    A folder with the same config is resumed, or found done; one with another config is refused unless `overwrite`.
    `watch` is called with the training after every logged step, and must leave it as it is. `keep_memory` writes TSA's
    memory of both domains into the folder, also of a run that is done.
    """
    if keep_memory and (config.source_term == "ce" or config.estimator != "memory"):
        raise UserError("there is no memory to keep: --keep-memory is for --tsa with --estimator memory.")
    if out is not None:
        check_place(out, config, overwrite)
    task = make_task(config, _say, quiet)
    config = task.config
    out = out or Path("runs") / config.hash()
    manifest = _manifest(task)
    with contextlib.ExitStack() as alone:
        if (out / "config.toml").exists():  # before anything of it is touched
            alone.enter_context(held(out))
            claim(out, config, manifest, overwrite)
        else:
            claim(out, config, manifest, overwrite)
            alone.enter_context(held(out))
        if not quiet:
            sizes = f"{config.source} ({len(task.source.train)} rows) → {config.target} ({len(task.target.train)} rows)"
            objective = " + ".join([config.method, config.source_term, *(["mi"] if config.mi else [])])
            _say(f"{sizes}, {len(task.classes)} classes, network {_network(task)}, {objective}, {config.steps} steps")
        done = out / "metrics.json"
        if done.exists():
            metrics: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
            if metrics["judged_by"] == _judged_by(task):
                if keep_memory:
                    keep_memory_of(out)
                _say(f"done already: {out}")
                return out, metrics
            # Trained, but judged by other labels than are here now: only the last part is done again.
            done.unlink()
        write_json(out / "manifest.json", manifest)
        return out, _fit(task, out, quiet, tensorboard, keep_memory, watch)


def _fit(
    task: Task,
    out: Path,
    quiet: bool,
    tensorboard: bool,
    keep_memory: bool,
    watch: Callable[[Training], None] | None,
) -> dict[str, Any]:
    """Train from the last checkpoint, or from the beginning, to the end; the metrics."""
    keep_freed_memory()
    training = make_training(task)
    resumed = _resume(training, out)
    records = Records(out / "records.jsonl", upto=training.at)
    tracker = _tracker(out, training.at) if tensorboard else None
    candidates = Candidates(task, out, training.at, quiet)
    try:
        if not resumed and training.source_term.needs_statistics:
            if not quiet:
                _say("one pass over both domains fills the memory …")
            training.fill_memory()  # a Ctrl-C in here stops at once: there is nothing to save yet
        with stop_signals() as stop, StepProgress(training.steps, training.at, quiet) as progress:
            _train(training, out, records, candidates, progress, stop, tracker, watch)
        if keep_memory:
            save_memory(out, training.source_term)
        if not predictions_file(out, training.at).exists():  # trained to its end by an older version
            candidates.take(training)
        return _finish(task, training, candidates, out)
    finally:
        records.close()
        candidates.close()
        if tracker is not None:
            tracker.close()


def _train(
    training: Training,
    out: Path,
    records: Records,
    candidates: Candidates,
    progress: StepProgress,
    stop: Stop,
    tracker: Any,
    watch: Callable[[Training], None] | None,
) -> None:
    """Step until the end; log and save on the way."""
    config, folder = training.config, out / "checkpoints"
    named: set[str] = set()
    while training.at < training.steps:
        at = training.at + 1
        log = at % config.log_every == 0 or at in (1, training.steps)
        try:
            said = training.step(describe=log)
            stopping = stop.asked  # looked at once, so that what is said is what was saved
            save = stopping or at % config.checkpoint_every == 0 or at == training.steps
            state = training.state() if save else None
        except NotFiniteError as error:
            raise UserError(
                f"{error} The run is stopped; a good checkpoint, if there was one, is kept in {folder}. A smaller --lr"
                " or --lambda0 usually helps."
            ) from error
        if log:
            records.append({"step": at, **said})
            if watch is not None:
                watch(training)
            if tracker is not None:
                for name, value in said.items():
                    if isinstance(value, int | float):
                        tracker.add_scalar(name, value, at)
        progress.advance(at, said if log else None)
        for name in [name for name in training.unreadable if name not in named]:
            named.add(name)
            _say_unreadable(name, training.unreadable[name])
        if at in candidates.steps:
            candidates.take(training)
        if state is not None:
            checkpoint.save(folder, at, state)
        if stopping and at < training.steps:
            raise Interrupted(at, out)


def make_training(task: Task) -> Training:
    """The training of a task, before its first step."""
    config = task.config
    source = task.source.train
    torch.manual_seed(mixed(config.seed, 2))
    backbone = task.eyes.backbone if task.eyes is not None and not task.eyes.frozen else None
    model = build(task.architecture, source.tensor if source.kind == "vector" else None, backbone)
    return Training(config, model, source, task.target.train.unlabelled(), task.prior, task.views())


def _network(task: Task) -> str:
    if task.eyes is None:
        return str(task.config.network)
    return f"{task.eyes.backbone.name} ({'frozen' if task.eyes.frozen else 'trained'}) + {task.config.network}"


def _resume(training: Training, out: Path) -> bool:
    """Go back to the newest whole checkpoint, if there is one."""
    found, damaged = checkpoint.latest(out / "checkpoints")
    for path in damaged:
        _say(f"damaged checkpoint passed over: {path}")
        path.unlink()
    if found is None:
        return False
    step, state = found
    training.load(state)
    _say(f"resumed at step {step}")
    return True


def _finish(task: Task, training: Training, candidates: Candidates, out: Path) -> dict[str, Any]:
    """Save the model, evaluate it on both domains, and write metrics.json last: its presence says the run is done."""
    source, target = task.source.test, task.target.test
    on_source, on_target = (candidates.look(training, domain) for domain in (source, target))
    for domain, predictions in ((source, on_source), (target, on_target)):
        for row, why in predictions.unreadable.items():
            name = f"{domain.name}: {domain.row_name(row)}"
            if name not in training.unreadable:
                _say_unreadable(name, why)
    if not all(np.isfinite(array).all() for p in (on_source, on_target) for array in (p.features, p.logits)):
        raise UserError("The trained network gives values that are not finite, and is not saved. Try a smaller --lr.")
    columns = task.source.train.columns
    save_model(out / "model", SavedModel(training.model, task.classes, task.architecture, columns, task.eyes))
    distance = proxy_a_distance(on_source.features, on_target.features, task.config.seed)
    last = {
        "step": training.at,
        "target": score(on_target, target, task.classes),
        "source": score(on_source, source, task.classes),
        "proxy_a_distance": number(distance),
    }
    if task.config.mi and task.prior is None and uneven(_shares(on_target)):
        _say(
            "note: the predicted classes of the target are far from equally frequent, while mutual information favours"
            " equal shares. If you know the shares, give them with --class-prior FILE."
        )
    metrics = {"hash": task.config.hash(), "judged_by": _judged_by(task), "last": last}
    if len(candidates.steps) > 1:
        metrics |= _compared(candidates, on_target, target, task.classes)
    write_json(out / "metrics.json", metrics)
    checkpoint.keep(out / "checkpoints", training.at)
    return metrics


def _compared(candidates: Candidates, on_target: Predicted, target: Domain, classes: tuple[str, ...]) -> dict[str, Any]:
    """The candidate that validators select, and, if the target has labels, the best by those: the oracle."""
    step, why = candidates.choose()
    selected = score(candidates.on_test(step, on_target), target, classes)
    found: dict[str, Any] = {"selected": {"step": step, "by": CONSENSUS, "why": why, "target": selected}}
    if target.y is not None:
        scores = {s: score(candidates.on_test(s, on_target), target, classes) for s in candidates.steps}
        by_step = {s: said["accuracy"] for s, said in scores.items()}
        best = max(by_step, key=lambda s: by_step[s])
        found["oracle"] = {
            "step": best, "accuracy": by_step[best], "by_step": {str(s): a for s, a in by_step.items()},
            "best_mean_class_accuracy": max(said["mean_class_accuracy"] for said in scores.values()),
        }  # fmt: skip
    return found


def _shares(predictions: Predicted) -> torch.Tensor:
    guess = torch.from_numpy(predictions.logits.argmax(1))
    counts = torch.bincount(guess, minlength=predictions.logits.shape[1]).double()
    return counts / counts.sum()


def _manifest(task: Task) -> dict[str, Any]:
    """What the run depends on. Its `data` must not change while it lasts; the target's labels are no part of it."""
    data: dict[str, Any] = {}
    for role, dataset in (("source", task.source), ("target", task.target)):
        train, test = dataset.train, dataset.test
        rows = {"name": train.name, "split": train.split, "rows": len(train)}
        data[role] = {**rows, "train": train.fingerprint(), "test": test.fingerprint()}
    data["source"]["labels"] = task.source.train.label_fingerprint()
    data["class prior"] = None if task.prior is None else task.prior.tolist()
    if task.eyes is not None:
        data["backbone"] = task.eyes.backbone.fingerprint()
    return {
        "hash": task.config.hash(),
        "seed": task.config.seed,
        "versions": versions(),
        "threads": torch.get_num_threads(),
        "data": data,
        "classes": list(task.classes),
    }


def versions() -> dict[str, str]:
    """What a result depends on beside the code."""
    packages = ("torch", "torchvision", "timm", "numpy", "scikit-learn", "tsadapt")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def _judged_by(task: Task) -> dict[str, str | None]:
    """The labels that the metrics are made with."""
    return {"source": task.source.test.label_fingerprint(), "target": task.target.test.label_fingerprint()}


def _tracker(out: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError("TensorBoard is not installed: pip install 'tsadapt[track]'.") from error
    return SummaryWriter(str(out / "tensorboard"), purge_step=step + 1)


def _say_unreadable(name: str, why: str) -> None:
    _say(f"passed over, it cannot be read: {name} ({why})")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
