"""Folders of runs and sweeps: every path, ownership and locking."""

import contextlib
import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from tsadapt.config import RUN_SETTINGS, RunConfig, differing_keys, read_config, to_toml
from tsadapt.errors import UserError
from tsadapt.files import write_atomically, write_json

__all__ = ["ModelFolder", "RunFolder", "SweepFolder", "locked", "read_json", "write_sealed"]


@dataclass(frozen=True)
class ModelFolder:
    """A saved model: weights, a frozen backbone's weights, and what is needed to use them."""

    path: Path

    @property
    def weights(self) -> Path:
        """The network."""
        return self.path / "model.safetensors"

    @property
    def backbone(self) -> Path:
        """A frozen backbone."""
        return self.path / "backbone.safetensors"

    @property
    def description(self) -> Path:
        """Classes, architecture, columns, preprocessing."""
        return self.path / "model.json"


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run. It is made by `claim`, worked in under `lock`, and done when it has metrics."""

    path: Path

    @property
    def config_file(self) -> Path:
        """The config; while it is there, the folder is known as a run's."""
        return self.path / "config.toml"

    @property
    def manifest_file(self) -> Path:
        """What the run depends on: versions, data, classes."""
        return self.path / "manifest.json"

    @property
    def metrics_file(self) -> Path:
        """Results, written last: their presence marks the run as done."""
        return self.path / "metrics.json"

    @property
    def confusion_file(self) -> Path:
        """Confusion matrices of many classes, to which the metrics refer."""
        return self.path / "confusion.safetensors"

    @property
    def records_file(self) -> Path:
        """One line for every logged step."""
        return self.path / "records.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The state to go on from."""
        return self.path / "checkpoints"

    @property
    def memory_file(self) -> Path:
        """The memory of both domains, if it was kept."""
        return self.path / "memory.safetensors"

    @property
    def tensorboard(self) -> Path:
        """Events for TensorBoard."""
        return self.path / "tensorboard"

    @property
    def model(self) -> ModelFolder:
        """The model of the last step."""
        return ModelFolder(self.path / "model")

    def candidate(self, step: int) -> ModelFolder:
        """The model of a candidate that is not the last step."""
        return ModelFolder(self.path / "candidates" / f"step-{step:09d}")

    @property
    def scores_file(self) -> Path:
        """Validators' scores of the candidates, on the way."""
        return self.path / "predictions" / "scores.jsonl"

    def predictions_file(self, step: int) -> Path:
        """What the network says at a candidate step, for validators."""
        return self.path / "predictions" / f"step-{step:09d}.npz"

    def test_logits_file(self, step: int) -> Path:
        """Logits of a candidate step on target rows that training does not see."""
        return self.path / "predictions" / f"test-{step:09d}.safetensors"

    def prediction_steps(self) -> list[int]:
        """The candidate steps whose predictions are there."""
        return sorted(int(p.stem.removeprefix("step-")) for p in (self.path / "predictions").glob("step-*.npz"))

    @property
    def exists(self) -> bool:
        """Whether there is a run, done or not."""
        return self.config_file.is_file()

    @property
    def done(self) -> bool:
        """Whether it was trained to its end."""
        return self.metrics_file.is_file()

    @property
    def config(self) -> RunConfig:
        """The run's config."""
        if not self.exists:
            raise UserError(f"No run at {self.path}: expected a folder that fit wrote (its --out).")
        return read_config(self.config_file)

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest; empty if there is none yet."""
        return read_json(self.manifest_file, ("data", "classes")) if self.manifest_file.is_file() else {}

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of a run that is done."""
        return read_json(self.metrics_file, ("last", "judged_by"))

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Write the manifest."""
        write_sealed(self.manifest_file, manifest)

    def write_metrics(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """Write the metrics: the run is done. Arrays go to a file of their own, and what is written is returned."""
        tables: dict[str, np.ndarray] = {}

        def referring(value: Any, key: str) -> Any:
            if isinstance(value, dict):
                return {name: referring(inner, f"{key}.{name}" if key else name) for name, inner in value.items()}
            if isinstance(value, np.ndarray):
                tables[key] = value
                return {"file": self.confusion_file.name, "key": key}
            return value

        metrics = referring(metrics, "")
        if tables:
            write_atomically(self.confusion_file, save(tables))
        write_sealed(self.metrics_file, metrics)
        return metrics

    def confusion(self, scored: dict[str, Any]) -> np.ndarray:
        """The confusion matrix of metrics such as `metrics["last"]["target"]`: (class, predicted class, rows) each.

        Only the pairs that occur are there.
        """
        found = scored["confusion"]
        if isinstance(found, dict):
            try:
                return load_file(self.path / found["file"])[found["key"]]
            except (OSError, KeyError, SafetensorError) as error:
                raise UserError(f"{self.confusion_file} cannot be read: {error}.") from error
        table = np.array(found)
        return np.stack([*table.nonzero(), table[table.nonzero()]], 1)

    def check(self, asked: RunConfig, overwrite: bool) -> None:
        """Refuse a folder that holds something else before any work is done; settings not given are not compared."""
        if self._is_run() and not overwrite:
            differ = differing_keys(self.config, asked)
            given = {
                k: pair for k, pair in differ.items() if k not in RUN_SETTINGS or pair[1] != RUN_SETTINGS[k].default
            }
            given = {k: pair for k, pair in given.items() if pair[1] is not None}
            if str(asked.train_from).startswith("-"):  # the number of a stage, which has a name there
                given.pop("train_from", None)
            if given:
                raise UserError(f"{self.path} holds {_other_config(given)}. Choose another --out, or --overwrite it.")

    def claim(self, config: RunConfig, manifest: dict[str, Any], overwrite: bool) -> None:
        """Make the folder this run's: empty, or of the same config and data, unless another may be overwritten."""
        self._finish_replacing()
        if self._is_run():
            try:
                other = self._difference(config, manifest)
            except UserError as error:  # damaged, or of another version
                if not overwrite:
                    raise UserError(f"{error} Choose another --out, or --overwrite it.") from error
                other = "a run"
            if not other:
                return
            if not overwrite:
                raise UserError(f"{self.path} holds {other}. Choose another --out, or --overwrite it.")
            self._replace(config)
            return
        try:
            write_atomically(self.config_file, to_toml(config))
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror}.") from error

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes of this machine out; the system lets go however the process ends."""
        with _locked_folder(self.path, "trained"):
            yield

    def check_there(self) -> None:
        """Refuse to go on in a folder that somebody removed or replaced: what is written there would be no run."""
        if not self.exists:
            raise UserError(
                f"{self.path} was removed or replaced while the run was writing to it. Run the same command again."
            )

    def _replace(self, config: RunConfig) -> None:
        """Put a fresh folder in place of the old run's, in one rename; files that are no run's stay where they were."""
        path, mark = self.path.absolute(), secrets.token_hex(8)
        fresh, old = (path.with_name(f".{path.name}.{what}-{mark}") for what in ("new", "old"))
        try:
            write_atomically(RunFolder(fresh).config_file, to_toml(config))
            path.rename(old)
            fresh.rename(path)
        except OSError as error:
            shutil.rmtree(fresh, ignore_errors=True)
            raise UserError(f"{self.path} cannot be replaced: {error.strerror}.") from error
        self._finish_replacing()

    def _finish_replacing(self) -> None:
        """Bring what is no run's from a replaced folder into the new one, and remove the rest; also after a kill."""
        path = self.path.absolute()
        left = re.compile(re.escape(f".{path.name}.") + "(new|old)-[0-9a-f]{16}")
        beside = sorted(path.parent.iterdir(), reverse=True) if path.parent.is_dir() else []  # old ones first
        for old in [entry for entry in beside if left.fullmatch(entry.name)]:
            if not path.exists():  # killed between the two renames
                old.rename(path)
                continue
            ours = {part.name for part in RunFolder(old)._parts()}
            for foreign in [entry for entry in old.iterdir() if entry.name not in ours]:
                foreign.rename(path / foreign.name)
            shutil.rmtree(old)

    def _parts(self) -> tuple[Path, ...]:
        """What a run puts into its folder."""
        return (
            self.manifest_file, self.metrics_file, self.confusion_file, self.records_file, self.checkpoints,
            self.model.path, self.scores_file.parent, self.candidate(0).path.parent, self.memory_file,
            self.tensorboard, self.config_file,
        )  # fmt: skip

    def _is_run(self) -> bool:
        """Whether a folder is a run's; refused if it is something else's."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"--out {self.path} is a file, expected a folder.")
        if self.exists:
            return True
        begun = f".{self.config_file.name}."
        if self.path.exists() and any(not path.name.startswith(begun) for path in self.path.iterdir()):
            raise UserError(f"{self.path} is not empty and holds no run: choose another --out.")
        return False

    def _difference(self, config: RunConfig, manifest: dict[str, Any]) -> str:
        """In what the run in the folder is another one; empty if it is the same."""
        differ = differing_keys(self.config, config)
        if differ:
            return _other_config(differ)
        before = self.manifest.get("data", manifest["data"])
        changed = [role for role, found in manifest["data"].items() if before.get(role) != found]
        return f"a run of other data: the {' and the '.join(changed)} changed since it began" if changed else ""


@dataclass(frozen=True)
class SweepFolder:
    """The folder of a sweep (its runs, what was chosen and why), or of a choice among other runs."""

    path: Path

    @property
    def choice_file(self) -> Path:
        """Which run and step was chosen, and why."""
        return self.path / "choice.json"

    @property
    def scores_file(self) -> Path:
        """Every candidate with every validator's score."""
        return self.path / "scores.csv"

    @property
    def oracle_file(self) -> Path:
        """What target labels say of it, if they are there."""
        return self.path / "oracle.json"

    @property
    def storage(self) -> Path:
        """Optuna's own file."""
        return self.path / "optuna.db"

    @property
    def runs_folder(self) -> Path:
        """Where the runs lie."""
        return self.path / "runs"

    def log(self, run: RunFolder) -> Path:
        """What one of its runs printed."""
        return self.path / "logs" / f"{run.path.name}.txt"

    def planned_config(self, run: RunFolder) -> Path:
        """The config of one of its runs that another command trains."""
        return self.path / "planned" / f"{run.path.name}.toml"

    def run(self, config: RunConfig) -> RunFolder:
        """The folder of one of its runs."""
        return RunFolder(self.runs_folder / config.hash())

    def runs(self) -> list[RunFolder]:
        """The runs that were begun."""
        inner = sorted(self.runs_folder.iterdir()) if self.runs_folder.is_dir() else []
        return [run for run in map(RunFolder, inner) if run.exists]

    @property
    def exists(self) -> bool:
        """Whether there is a sweep, done or not."""
        return self.runs_folder.is_dir() or self.storage.exists()

    @property
    def chosen(self) -> tuple[RunFolder, int] | None:
        """The run and step that were chosen; None before."""
        if not self.choice_file.is_file():
            return None
        choice = read_json(self.choice_file, ("run", "step"))
        return RunFolder(self.path / str(choice["run"])), choice["step"]

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other sweeps of this machine out of the folder: of two, each would miss the runs of the other."""
        with _locked_folder(self.path, "used"):
            yield


@contextlib.contextmanager
def _locked_folder(folder: Path, what: str) -> Iterator[None]:
    """Hold the lock of a folder. It lies beside the folder, so that it outlives the folder's replacement."""
    path = folder.absolute()
    try:
        with locked(path.with_name(f".{path.name}.lock"), timeout=0):
            yield
    except Timeout:
        raise UserError(f"{folder} is being {what} by another process: wait for it, or choose another --out.") from None


@contextlib.contextmanager
def locked(path: Path, timeout: float = -1) -> Iterator[None]:
    """Hold a lock file; where it cannot be made (a folder to read from, a file system without locks) go on without."""
    lock = FileLock(path, fallback_to_soft=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=timeout)
    except Timeout:
        raise
    except (OSError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # while it is held: who waits for it notices, and makes a new one
            path.unlink()
        lock.release()


SEAL = "sha256"
"""The key of a file's own checksum: a change of one letter could name another model."""


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Write a value as JSON together with its checksum; `read_json` compares it."""
    write_json(path, {**value, SEAL: _checksum(json.loads(json.dumps(value)))})


def read_json(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    """A JSON file of ours, with these keys in it, as it was written."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}. Expected JSON that tsadapt wrote.") from error
    if not isinstance(found, dict) or not all(key in found for key in keys):
        raise UserError(f"{path} was not written by tsadapt: expected {', '.join(keys)} in it.")
    if SEAL in found and found.pop(SEAL) != _checksum(found):
        raise UserError(f"{path} is damaged: its content does not match its checksum.")
    return found


def _checksum(value: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _other_config(differ: dict[str, tuple[Any, Any]]) -> str:
    def shown(value: Any) -> str:
        return "default" if value is None else repr(value)

    keys = ", ".join(f"{key} (there {shown(a)}, here {shown(b)})" for key, (a, b) in differ.items())
    return f"a run with another config: {keys}"
