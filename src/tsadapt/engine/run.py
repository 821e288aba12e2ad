"""A run as a folder: trained, resumed or found done; evaluated at its end."""

import json
import platform
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from tsadapt.config import RunConfig, differing_keys, read_config, to_toml
from tsadapt.data.loader import seeded
from tsadapt.engine import checkpoint
from tsadapt.engine.evaluate import Predictions, predict_rows, score
from tsadapt.engine.files import write_atomically, write_json
from tsadapt.engine.loop import NotFiniteError, Training
from tsadapt.engine.progress import StepProgress
from tsadapt.engine.records import Records
from tsadapt.engine.saved import save_model
from tsadapt.engine.task import Task, make_task, uneven
from tsadapt.errors import UserError
from tsadapt.models.build import build
from tsadapt.selection.density import proxy_a_distance

__all__ = ["Interrupted", "fit"]

OURS = (
    "config.toml",
    "manifest.json",
    "records.jsonl",
    "metrics.json",
    "checkpoints",
    "model",
    "predictions",
    "tensorboard",
)
"""What a run folder holds; `overwrite` removes these and nothing else."""


class Interrupted(Exception):  # noqa: N818 (nothing went wrong)
    """The user stopped the run; its checkpoint is written."""

    def __init__(self, step: int, out: Path) -> None:
        super().__init__(f"stopped at step {step}; the same command goes on from there ({out})")
        self.step = step


@dataclass
class _Stop:
    asked: bool = False


def fit(
    config: RunConfig,
    out: Path | None = None,
    *,
    overwrite: bool = False,
    quiet: bool = False,
    tensorboard: bool = False,
) -> tuple[Path, dict[str, Any]]:
    """Train what the config says into the folder `out` (runs/HASH unless told); the folder, and its metrics.

    A folder with the same config is resumed, or found done; one with another config is refused unless `overwrite`.
    """
    task = make_task(config)
    config = task.config
    out = out or Path("runs") / config.hash()
    _claim(out, config, overwrite)
    for note in task.notes:
        _say(f"note: {note}")
    done = out / "metrics.json"
    if done.exists():
        _say(f"done already: {out}")
        metrics: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
        return out, metrics
    training = _make_training(task)
    _write_manifest(task, out)
    resumed = _resume(training, out)
    records = Records(out / "records.jsonl", upto=training.at)
    tracker = _tracker(out, training.at) if tensorboard else None
    try:
        with _stop_signals() as stop, StepProgress(training.steps, training.at, quiet) as progress:
            if not resumed:
                training.fill_memory()
            _train(training, out, records, progress, stop, tracker)
    finally:
        records.close()
        if tracker is not None:
            tracker.close()
    return out, _finish(task, training, out)


def _train(training: Training, out: Path, records: Records, progress: StepProgress, stop: _Stop, tracker: Any) -> None:
    """Step until the end; log and save on the way."""
    config, folder = training.config, out / "checkpoints"
    while training.at < training.steps:
        at = training.at + 1
        log = at % config.log_every == 0 or at in (1, training.steps)
        try:
            said = training.step(describe=log)
        except NotFiniteError as error:
            raise UserError(
                f"{error} The run is stopped; its last good checkpoint is kept in {folder}. A smaller --lr or --lambda0"
                " usually helps."
            ) from error
        if log:
            records.append({"step": at, **said})
            if tracker is not None:
                for name, value in said.items():
                    if isinstance(value, int | float):
                        tracker.add_scalar(name, value, at)
        progress.advance(at, said if log else None)
        if stop.asked or at % config.checkpoint_every == 0 or at == training.steps:
            checkpoint.save(folder, at, training.state())
        if stop.asked and at < training.steps:
            raise Interrupted(at, out)


def _make_training(task: Task) -> Training:
    config = task.config
    source = task.source.train
    torch.manual_seed(seeded(config.seed, 2).initial_seed())
    model = build(task.architecture, source.x if source.kind == "vector" else None)
    return Training(config, model, source, task.target.train.unlabelled(), task.prior)


def _resume(training: Training, out: Path) -> bool:
    """Go back to the newest whole checkpoint, if there is one."""
    found = checkpoint.latest(out / "checkpoints")
    if found is None:
        return False
    step, state, damaged = found
    for path in damaged:
        _say(f"damaged checkpoint passed over: {path}")
        path.unlink()
    training.load(state)
    _say(f"resumed at step {step}")
    return True


def _claim(out: Path, config: RunConfig, overwrite: bool) -> None:
    """Make the folder this run's: empty or of the same config, unless it may be overwritten."""
    theirs = out / "config.toml"
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file, expected a folder.")
    ours = theirs.exists()
    if ours and overwrite:
        for name in OURS:
            path = out / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    elif ours:
        differ = differing_keys(read_config(theirs), config)
        if differ:
            keys = ", ".join(f"{key} (there {a!r}, here {b!r})" for key, (a, b) in differ.items())
            raise UserError(f"{out} holds a run with another config: {keys}. Choose another --out, or --overwrite it.")
        return
    elif out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty and holds no run: choose another --out.")
    try:
        write_atomically(theirs, to_toml(config))
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}.") from error


def _finish(task: Task, training: Training, out: Path) -> dict[str, Any]:
    """Save the model, evaluate it on both domains, and write metrics.json last: its presence says the run is done."""
    save_model(out / "model", training.model, task.classes, task.architecture)
    source, target = task.source.test, task.target.test
    on_source = predict_rows(training.model, source.x, training.device)
    on_target = predict_rows(training.model, target.x, training.device)
    last = {
        "step": training.at,
        "target": score(on_target, target, task.classes),
        "source": score(on_source, source, task.classes),
        "proxy_a_distance": proxy_a_distance(on_source.features, on_target.features, task.config.seed),
    }
    if task.config.mi and task.prior is None and uneven(_shares(on_target)):
        _say(
            "note: the predicted classes of the target are far from equally frequent, while mutual information favours"
            " equal shares. If you know the shares, give them with --class-prior FILE."
        )
    metrics = {"hash": task.config.hash(), "last": last}
    write_json(out / "metrics.json", metrics)
    checkpoint.keep(out / "checkpoints", training.at)
    return metrics


def _shares(predictions: Predictions) -> torch.Tensor:
    guess = torch.from_numpy(predictions.logits.argmax(1))
    counts = torch.bincount(guess, minlength=predictions.logits.shape[1]).double()
    return counts / counts.sum()


def _write_manifest(task: Task, out: Path) -> None:
    """Write what the run depends on; refuse to go on with a run whose data has changed since it began."""
    path = out / "manifest.json"
    names = ("torch", "numpy", "scikit-learn", "tsadapt")
    data = {}
    for role, dataset in (("source", task.source), ("target", task.target)):
        domain = dataset.train
        rows = {"name": domain.name, "split": domain.split, "rows": len(domain), "fingerprint": domain.fingerprint()}
        data[role] = rows
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))["data"]
        changed = [role for role in data if before[role]["fingerprint"] != data[role]["fingerprint"]]
        if changed:
            raise UserError(
                f"The {' and the '.join(changed)} data changed since the run in {out} began: choose another --out, or"
                " --overwrite it."
            )
    versions = {"python": platform.python_version(), **{name: version(name) for name in names}}
    manifest = {"hash": task.config.hash(), "seed": task.config.seed, "versions": versions, "data": data}
    write_json(path, {**manifest, "threads": torch.get_num_threads(), "classes": list(task.classes)})


def _tracker(out: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError("TensorBoard is not installed: pip install 'tsadapt[track]'.") from error
    return SummaryWriter(str(out / "tensorboard"), purge_step=step + 1)


@contextmanager
def _stop_signals() -> Iterator[_Stop]:
    """The first Ctrl-C or SIGTERM asks the loop to stop after its step; a second one stops at once."""
    stop = _Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are somebody else's
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
