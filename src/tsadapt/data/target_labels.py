"""A few labelled target rows, by their names: to measure with, never to train with."""

import csv
from collections.abc import Iterable
from pathlib import Path, PurePath

import numpy as np

from tsadapt.data.folders import load_folder
from tsadapt.data.reading import reading
from tsadapt.data.types import Domain
from tsadapt.errors import UserError, few, unknown

__all__ = ["read_target_labels"]

NONE = -1


def read_target_labels(path: str | Path, target: Domain, classes: tuple[str, ...]) -> np.ndarray:
    """The class of every target row (N,) as an index into `classes`, −1 for a row that the file does not name.

    A CSV has a line `name,label` for each row: the path of an image in the target (its file name will do where no other
    row has it), or the number of a row. A folder of class folders holds copies of target images.
    """
    where = Path(path).expanduser()
    if not where.exists():
        raise UserError(
            f"--target-labels {path} does not exist: expected a CSV with lines name,label, or class folders."
        )
    pairs = [*_of_folder(where)] if where.is_dir() else _of_file(where, classes)
    if not pairs:
        raise UserError(f"--target-labels {path} names no row: expected lines name,label.")
    rows, labels = _rows_by_name(target), {name: i for i, name in enumerate(classes)}
    found = np.full(len(target), NONE)
    strange = [name for name, _ in pairs if name not in rows and PurePath(name).name not in rows]
    if strange:
        raise UserError(
            f"--target-labels {path} names {few(strange)}, which the target {target.name} does not have: expected names"
            f" such as {target.row_name(0)}."
        )
    for name, label in pairs:
        if label not in labels:
            raise UserError(f"--target-labels {path}: {unknown('class', label, classes)}")
        row = rows[name] if name in rows else rows[PurePath(name).name]
        if row is None:
            raise UserError(f"--target-labels {path}: several target rows are called {name}: give their paths.")
        if found[row] not in (NONE, labels[label]):
            raise UserError(f"--target-labels {path} gives {name} two classes: {classes[found[row]]} and {label}.")
        found[row] = labels[label]
    return found


def _rows_by_name(target: Domain) -> dict[str, int | None]:
    """Row numbers by full names and by file names; None where several rows have the name."""
    names = [target.row_name(row) for row in range(len(target))]
    short: dict[str, int | None] = {}
    for row, name in enumerate(names):
        last = PurePath(name).name
        short[last] = None if last in short else row
    return short | dict(zip(names, range(len(names)), strict=True))


def _of_folder(folder: Path) -> Iterable[tuple[str, str]]:
    domain = load_folder(folder, str(folder))
    if domain.y is None or domain.classes is None:
        raise UserError(f"--target-labels {folder} has no class folders: expected one folder for each class.")
    for row, label in enumerate(domain.y.tolist()):
        if label >= 0:
            yield PurePath(domain.row_name(row)).name, domain.classes[label]


def _of_file(path: Path, classes: tuple[str, ...]) -> list[tuple[str, str]]:
    with reading(str(path), "a CSV with lines name,label"):
        lines = [line for line in csv.reader(path.read_text(encoding="utf-8-sig").splitlines()) if line]
    if wrong := [i for i, line in enumerate(lines, 1) if len(line) != 2]:
        raise UserError(
            f"--target-labels {path}, line {wrong[0]}, has {len(lines[wrong[0] - 1])} columns: expected name,label."
        )
    pairs = [(name.strip(), label.strip()) for name, label in lines]
    return pairs[1:] if pairs and pairs[0][1] in ("label", "class") and pairs[0][1] not in classes else pairs
