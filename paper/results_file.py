"""What was measured for a table: one JSON file that several processes may add to."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tsadapt.errors import UserError
from tsadapt.files import write_json

__all__ = ["Kept", "Key", "Ledger", "parts"]

Kept = dict[str, dict[str, Any]]
"""What was measured, by the keys of the jobs."""


class Key(NamedTuple):
    """Which run of a table: as text, its name in the file."""

    row: str
    column: str
    seed: int

    def __str__(self) -> str:
        return f"{self.row} | {self.column} | {self.seed}"


def parts(key: str) -> Key:
    """The row, column and seed of a name.

    >>> parts("DANN +TSA | M → U | 0")
    Key(row='DANN +TSA', column='M → U', seed=0)
    """
    row, column, seed = key.split(" | ")
    return Key(row, column, int(seed))


class Ledger:
    """The runs of a table by their keys, why others were not run, and what was measured beside them.

    Only what this process measured is written over what the file holds, so that another process loses nothing.
    """

    def __init__(self, path: Path, said: dict[str, Any]) -> None:
        self.path, self.said = path, said
        self.runs: Kept = {}
        self.not_run: dict[str, str] = {}
        self.extra: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}
        self._mine: Kept = {}
        self._reasons: dict[str, str] = {}
        self._extra: dict[str, Any] | None = None
        self._read()

    def add(self, key: str, run: dict[str, Any]) -> None:
        """Take in what was measured of a run."""
        self.runs[key] = self._mine[key] = run
        self._reasons.pop(key, None)
        self.not_run.pop(key, None)

    def explain(self, reasons: dict[str, str]) -> None:
        """Say why some runs are not there."""
        self._reasons |= reasons
        self.not_run |= reasons

    def replace_extra(self, extra: dict[str, Any]) -> None:
        """Take in what was measured beside the runs."""
        self.extra = self._extra = extra

    def save(self) -> None:
        """Write all of it, with what other processes have written in the meantime."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(self.path.parent):
            self._read()
            write_json(
                self.path,
                {
                    **self.said, "settings": self.settings, "extra": self.extra, "not_run": self.not_run,
                    "runs": self.runs,
                },
            )  # fmt: skip

    def _read(self) -> None:
        """What the file holds, under what this process measured."""
        if not self.path.is_file():
            return
        try:
            said = json.loads(self.path.read_text(encoding="utf-8"))
            self.runs = {**said["runs"], **self._mine}
            reasons = {**said.get("not_run", {}), **self._reasons}
            self.not_run = {key: why for key, why in reasons.items() if key not in self.runs}
            self.extra = said.get("extra", {}) if self._extra is None else self._extra
            self.settings = self.settings or said.get("settings", {})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{self.path} is not a file that reproduce wrote: choose another --out, or move it away."
            ) from error


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process of this machine writes here, where the system knows how."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system that knows no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
