"""Checkpoints: complete, atomic, and recognised when damaged.

A file is the SHA-256 of what follows, and what follows: a dictionary of tensors and numbers, saved by torch and loaded
with `weights_only`, so that reading one never runs code.

Of several processes each writes its part of the memories into a file of its own, and the first, last, all the rest.
"""

import hashlib
import io
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO, Any

import torch

from tsadapt.core.processes import Processes
from tsadapt.files import writing

__all__ = ["keep", "latest", "parts_of", "save"]

KEPT = 2
"""How many checkpoints a run keeps: the last, and one in case the last is damaged."""

DIGEST = hashlib.sha256().digest_size


def save(
    folder: Path, step: int, state: dict[str, Any], processes: Processes | None = None, sharded: Collection[str] = ()
) -> Path:
    """Write the state of a step, and remove checkpoints that are no longer needed.

    Of several `processes` all call it; `sharded` are the keys of the objective's state that each has for itself.
    """
    path = folder / f"step-{step:09d}.pt"
    if processes is not None:
        objective = state["objective"]
        mine = {key: objective[key] for key in sharded}
        if not processes.first:
            _write(_part(path, processes.rank, processes.number), {"part": mine})
        processes.wait()
        if not processes.first:
            return path
        rest = {key: value for key, value in objective.items() if key not in mine}
        state = {**state, "objective": rest, "part": mine, "processes": processes.number}
    _write(path, state)
    # A file of a later step can only be left over from a run that went back: it is not the newest.
    others = [old for old in _all(folder) if old != path]
    for old in [old for old in others if old > path] + [old for old in others if old < path][: 1 - KEPT]:
        old.unlink(missing_ok=True)
    _remove_parts(folder)
    return path


def parts_of(folder: Path, state: dict[str, Any]) -> list[dict[str, Any]]:
    """What each process had of a state that several have saved; none if one did. Refused if a part is damaged."""
    number = state.get("processes", 1)
    if "part" not in state:
        return []
    path, found = folder / f"step-{state['step']:09d}.pt", [state["part"]]
    for rank in range(1, number):
        part = _read(_part(path, rank, number))
        if part is None:
            raise ValueError(f"part {rank} of {number} of {path} is missing or damaged")
        found.append(part["part"])
    return found


def _part(path: Path, rank: int, number: int) -> Path:
    return path.with_name(f"{path.stem}.{rank}-of-{number}.part")


def _remove_parts(folder: Path) -> None:
    """Remove parts without the rest."""
    for part in folder.glob("step-*.part"):
        if not (folder / f"{part.name.partition('.')[0]}.pt").exists():
            part.unlink(missing_ok=True)


def _write(path: Path, state: dict[str, Any]) -> None:
    with writing(path) as file:
        file.write(bytes(DIGEST))  # the place of the digest, which is known at the end
        hashed = _Hashed(file)
        torch.save(state, hashed)  # type: ignore[arg-type]  # it only writes
        file.seek(0)
        file.write(hashed.digest())


class _Hashed:
    """A file to write to, and the SHA-256 of what was written: a state in memory twice more is too much."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._sum = file, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._sum.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def digest(self) -> bytes:
        return self._sum.digest()


def latest(
    folder: Path, use: Callable[[dict[str, Any]], None] = lambda state: None
) -> tuple[tuple[int, dict[str, Any]] | None, list[Path]]:
    """Step and state of the newest checkpoint that is whole (None: there is none), and the damaged ones met.

    `use` takes the state up, and raises if it is not one of this run's: that one is passed over as damaged, too.
    """
    damaged: list[Path] = []
    for path in reversed(_all(folder)):
        state = _load(path)
        if state is not None:
            try:
                use(state)
            except MemoryError:
                raise
            except Exception:  # a file can be whole and hold anything
                state = None
        if state is not None:
            return (int(path.stem.removeprefix("step-")), state), damaged
        damaged.append(path)
    return None, damaged


def keep(folder: Path, step: int) -> None:
    """Remove every checkpoint but the one of that step."""
    for path in _all(folder):
        if path.stem != f"step-{step:09d}":
            path.unlink()
    _remove_parts(folder)


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.pt"))


def _load(path: Path) -> dict[str, Any] | None:
    """The state in a file; None if it is damaged, or the state of another step."""
    state = _read(path)
    if state is None or ("step" in state and path.stem != f"step-{state['step']!s:0>9}"):
        return None
    return state


def _read(path: Path) -> dict[str, Any] | None:
    """The dictionary in a file; None if it is damaged."""
    if not path.is_file():  # a folder, or a pipe, at which reading would wait for ever
        return None
    with path.open("rb") as file:
        digest, data = file.read(DIGEST), file.read()
    if hashlib.sha256(data).digest() != digest:
        return None
    try:
        state = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except MemoryError:
        raise
    except Exception:  # of whatever parses a part of the file
        return None
    return state if isinstance(state, dict) else None
