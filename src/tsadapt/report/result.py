"""What `tsadapt adapt` leaves beside its runs: how the candidates are called, and how far to trust the chosen one.

The page is made of it, by `adapt` itself or later by `tsadapt report`.

Shapes: N target rows.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tsadapt.files import write_atomically
from tsadapt.report.page import Interval, Trusted
from tsadapt.runs.folder import read_json
from tsadapt.trust import WORTH

__all__ = ["SUMMARY", "TRUST", "Result", "read_result", "write_trust"]

SUMMARY, TRUST = "summary.json", "trust.npz"
"""What a result's folder has for programs, and what its summary has of each row."""

ROWS = ("right", "doubtful", "second", "truth")
"""Of `Trusted`, what there is of each row."""


@dataclass(frozen=True)
class Result:
    """The chosen run's folder, what is known of its predictions, all runs' names by their folders, and the command."""

    chosen: Path
    trusted: Trusted
    names: Mapping[Path, str] = field(default_factory=dict)
    command: str = ""


def write_trust(path: Path, trusted: Trusted) -> None:
    """Keep what is known of each row."""
    arrays = {name: found for name in ROWS if (found := getattr(trusted, name)) is not None}
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    write_atomically(path, file.getvalue())


def read_result(folder: Path) -> Result | None:
    """The result in a folder; None if it holds none that is done."""
    summary_file, rows_file = folder / SUMMARY, folder / TRUST
    if not summary_file.is_file() or not rows_file.is_file():
        return None
    summary = read_json(summary_file, ("chosen", "candidates", "estimated_accuracy", "class_shares", "doubtful"))
    with np.load(rows_file) as rows:
        arrays = {name: rows[name] for name in ROWS if name in rows}
    trusted = Trusted(
        estimate=Interval(**summary["estimated_accuracy"]),
        threshold=summary["doubtful"]["threshold"],
        shares={name: Interval(**share) for name, share in summary["class_shares"].items()},
        notes=tuple(summary["notes"]),
        worth=WORTH,
        meaning=summary["doubtful"]["meaning"],
        **arrays,
    )
    names = {folder / one["run"]: one["candidate"] for one in summary["candidates"]}
    return Result(folder / summary["chosen"]["run"], trusted, names, summary["command"])
