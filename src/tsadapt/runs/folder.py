"""The folder of a run: empty, or of the same run, and never something else's."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from tsadapt.config import RunConfig, differing_keys, read_config, to_toml
from tsadapt.errors import UserError
from tsadapt.files import write_atomically

__all__ = ["check_place", "claim", "held"]

OURS = (
    "config.toml",
    "manifest.json",
    "records.jsonl",
    "metrics.json",
    "checkpoints",
    "model",
    "predictions",
    "candidates",
    "memory.safetensors",
    "tensorboard",
    ".lock",
)
"""What a run folder holds; `overwrite` removes these and nothing else."""


def check_place(out: Path, asked: RunConfig, overwrite: bool) -> None:
    """Refuse a folder that holds something else before any work is done; settings not given are not compared."""
    if _holds_run(out) and not overwrite:
        unset = {f.name: f.default for f in fields(RunConfig)}
        differ = differing_keys(read_config(out / "config.toml"), asked)
        given = {key: pair for key, pair in differ.items() if pair[1] != unset[key]}
        if given:
            raise UserError(f"{out} holds {_other_config(given)}. Choose another --out, or --overwrite it.")


def _holds_run(out: Path) -> bool:
    """Whether a folder is a run's; refused if it is something else's."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file, expected a folder.")
    if (out / "config.toml").exists():
        return True
    if out.exists() and any(not path.name.startswith(".config.toml.") for path in out.iterdir()):
        raise UserError(f"{out} is not empty and holds no run: choose another --out.")
    return False


def _other_config(differ: dict[str, tuple[Any, Any]]) -> str:
    keys = ", ".join(f"{key} (there {a!r}, here {b!r})" for key, (a, b) in differ.items())
    return f"a run with another config: {keys}"


def claim(out: Path, config: RunConfig, manifest: dict[str, Any], overwrite: bool) -> None:
    """Make the folder this run's: empty, or of the same config and data, unless another may be overwritten."""
    theirs = out / "config.toml"
    if _holds_run(out):
        other = _difference(out, config, manifest)
        if not other:
            return
        if not overwrite:
            raise UserError(f"{out} holds {other}. Choose another --out, or --overwrite it.")
        for name in reversed(OURS):  # the config last: while it is there, the folder is known as a run's
            path = out / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    try:
        write_atomically(theirs, to_toml(config))
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}.") from error


def _difference(out: Path, config: RunConfig, manifest: dict[str, Any]) -> str:
    """In what the run in a folder is another one; empty if it is the same."""
    differ = differing_keys(read_config(out / "config.toml"), config)
    if differ:
        return _other_config(differ)
    path = out / "manifest.json"
    before = json.loads(path.read_text(encoding="utf-8"))["data"] if path.exists() else manifest["data"]
    changed = [role for role, said in manifest["data"].items() if before.get(role) != said]
    return f"a run of other data: the {' and the '.join(changed)} changed since it began" if changed else ""


@contextlib.contextmanager
def held(out: Path) -> Iterator[None]:
    """Keep other processes of this machine out of a run's folder; the system lets go of it however the process ends."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    try:
        lock = (out / ".lock").open("w")
    except PermissionError:  # a folder to read from, in which nothing can be trained
        yield
        return
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{out} is being trained by another process: wait for it, or choose another --out."
            ) from None
        except OSError:  # a file system that knows no locks
            yield
            return
        yield
