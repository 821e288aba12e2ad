"""What was measured for a table: one JSON file that several processes may add to."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

from tsadapt.errors import UserError
from tsadapt.files import write_json

__all__ = ["Key", "Results", "ResultsFile", "parts"]

Results = dict[str, dict[str, Any]]
"""What was measured, by the keys of the runs."""

LOCK = Path("work/results.lock")
"""Beside the runs, which no repository keeps."""


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


class ResultsFile:
    """The runs of a table by their keys, why others were not run, and what was measured beside them.

    `header` is written first: the name of the table, its data and protocol, and the command. Only what this process
    measured replaces what the file holds, so two processes can fill one table.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path, self.header = path, header
        self.runs: Results = {}
        self.not_run: dict[str, str] = {}
        self.extra: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}
        self._mine: Results = {}
        self._reasons: dict[str, str] = {}
        self._extra: dict[str, Any] | None = None
        self._read()

    def add(self, key: str, run: dict[str, Any]) -> None:
        """Enter what was measured of a run."""
        self.runs[key] = self._mine[key] = run
        self._reasons.pop(key, None)
        self.not_run.pop(key, None)

    def explain(self, reasons: dict[str, str]) -> None:
        """Enter why some runs are missing."""
        self._reasons |= reasons
        self.not_run |= reasons

    def replace_extra(self, extra: dict[str, Any]) -> None:
        """Enter what was measured beside the runs."""
        self.extra = self._extra = extra

    def save(self) -> None:
        """Write everything, together with what other processes have written meanwhile."""
        lock = self.path.parent / LOCK
        lock.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock):
            self._read()
            sections = {"settings": self.settings, "extra": self.extra, "not_run": self.not_run, "runs": self.runs}
            write_json(self.path, {**self.header, **sections})

    def _read(self) -> None:
        """Read the file; what this process measured takes precedence."""
        if not self.path.is_file():
            return
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            self.runs = {**stored["runs"], **self._mine}
            reasons = {**stored.get("not_run", {}), **self._reasons}
            self.not_run = {key: why for key, why in reasons.items() if key not in self.runs}
            self.extra = stored.get("extra", {}) if self._extra is None else self._extra
            self.settings = self.settings or stored.get("settings", {})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{self.path} is not a results file of `python -m paper`: choose another --out, or move it away."
            ) from error
