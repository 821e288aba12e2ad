"""A few labelled rows, by their names: to measure with, and to train on where a run says so."""

import csv
import hashlib
import io
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from tsadapt.data.folders import load_folder
from tsadapt.data.lists import load_paths
from tsadapt.data.reading import reading
from tsadapt.data.tables import LABELS
from tsadapt.data.types import Domain
from tsadapt.errors import UserError, counted, few, unknown

__all__ = ["are_names_and_labels", "labelled_beside", "labels_in_memory", "name_in_memory", "read_target_labels"]

NONE = -1

IN_MEMORY = "memory:"
"""How a config names labels of a Python program; data in memory is named alike."""


def read_target_labels(
    path: str | Path, target: Domain, classes: tuple[str, ...], what: str = "--target-labels "
) -> np.ndarray:
    """The class of every target row (N,) as an index into `classes`, −1 for a row that the file does not name.

    A CSV has a line `name,label` for each row: the path of an image in the target (its file name will do where no other
    row has it), or the number of a row. A folder of class folders holds copies of target images. `what` is what
    messages call it, before its path.
    """
    where = Path(os.path.expanduser(path))
    if str(path).startswith(IN_MEMORY):
        raise UserError(f"{path} stands for labels of a Python program: pass them again, or as a CSV of name,label.")
    if not where.exists():
        raise UserError(f"{what}{path} does not exist: expected a CSV with lines name,label, or class folders.")
    pairs = [*_of_folder(where, what)] if where.is_dir() else _of_file(where, classes, what)
    if pairs and pairs[0][0] == target.id_column:  # a heading
        pairs = pairs[1:]
    if not pairs:
        raise UserError(f"{what}{path} names no row: expected lines name,label.")
    rows, labels = _rows_by_name(target), {name: i for i, name in enumerate(classes)}
    found = np.full(len(target), NONE)
    strange = [name for name, _ in pairs if name not in rows and PurePath(name).name not in rows]
    if strange:
        raise UserError(
            f"{what}{path} names {few(strange)}, which the target {target.name} does not have: expected names"
            f" such as {target.row_name(0)}."
        )
    for name, label in pairs:
        if label not in labels:
            raise UserError(f"{what}{path}: {unknown('class', label, classes)}")
        row = rows[name] if name in rows else rows[PurePath(name).name]
        if row is None:
            raise UserError(f"{what}{path}: several target rows are called {name}: give their paths.")
        if found[row] not in (NONE, labels[label]):
            raise UserError(f"{what}{path} gives {name} two classes: {classes[found[row]]} and {label}.")
        found[row] = labels[label]
    return found


def labels_in_memory(values: Any, rows: int, classes: Sequence[Any], name: str = "target_labels") -> np.ndarray:
    """The class of every target row (N,) as an index into `classes`, −1 for none, from one value for each row.

    −1, None and NaN stand for no label; −1 is a label where the source has a class of that name.

    >>> labels_in_memory(["dog", None, -1, "cat"], 4, ("cat", "dog"))
    array([ 1, -1, -1,  0])
    """
    given = np.asarray(values)
    if given.ndim != 1 or len(given) != rows:
        raise UserError(
            f"{name} has shape {given.shape}, expected one label for each of {rows} target rows, -1 for none."
        )
    place = {value: i for i, value in enumerate(classes)}
    found = np.full(rows, NONE)
    for row, value in enumerate(given.tolist()):
        spelt = [value, str(value)]
        if isinstance(value, float) and value.is_integer():
            spelt += [int(value), str(int(value))]
        known = [place[one] for one in spelt if one in place]
        if known:
            found[row] = known[0]
        elif not (value is None or value in (NONE, str(NONE)) or (isinstance(value, float) and math.isnan(value))):
            raise UserError(f"{name}, row {row}: {unknown('class', str(value), map(str, classes))}")
    if (found == NONE).all():
        raise UserError(f"{name} has no label: expected the class of some target rows, -1 for the others.")
    return found


def name_in_memory(labels: np.ndarray) -> str:
    """How a config names labels that a Python program passed: by what they are."""
    return f"{IN_MEMORY}{hashlib.sha256(labels.tobytes()).hexdigest()[:16]}"


def _rows_by_name(target: Domain) -> dict[str, int | None]:
    """Row numbers by full names and by file names; None where several rows have the name."""
    names = [target.row_name(row) for row in range(len(target))]
    short: dict[str, int | None] = {}
    for row, name in enumerate(names):
        last = PurePath(name).name
        short[last] = None if last in short else row
    return short | dict(zip(names, range(len(names)), strict=True))


def _of_folder(folder: Path, what: str) -> Iterable[tuple[str, str]]:
    domain = load_folder(folder, str(folder))
    if domain.y is None or domain.classes is None:
        raise UserError(f"{what}{folder} has no class folders: expected one folder for each class.")
    for row, label in enumerate(domain.y.tolist()):
        if label >= 0:
            yield PurePath(domain.row_name(row)).name, domain.classes[label]


def _of_file(path: Path, classes: tuple[str, ...], what: str) -> list[tuple[str, str]]:
    lines = _lines(path)
    if wrong := [i for i, line in enumerate(lines, 1) if len(line) != 2]:
        raise UserError(
            f"{what}{path}, line {wrong[0]}, has {counted(len(lines[wrong[0] - 1]), 'column')}: expected name,label."
        )
    pairs = [(name.strip(), label.strip()) for name, label in lines]
    return pairs[1:] if pairs and pairs[0][1].lower() in LABELS and pairs[0][1] not in classes else pairs


def _lines(path: Path) -> list[list[str]]:
    with reading(str(path), "a CSV with lines name,label"):
        text = path.read_text(encoding="utf-8-sig")
        first = text.partition("\n")[0]
        separator = ";" if ";" in first and "," not in first else ","
        return [line for line in csv.reader(io.StringIO(text), delimiter=separator) if line]  # a name may be two lines


def are_names_and_labels(path: str | Path, columns: tuple[str, ...] | None) -> bool:
    """Whether a file is a CSV with lines name,label, and no table with the `columns` that a model takes."""
    where = Path(os.path.expanduser(path))
    if where.suffix.lower() != ".csv" or not where.is_file():
        return False
    lines = _lines(where)
    two = bool(lines) and all(len(line) == 2 for line in lines)
    return two and not (columns and {*columns} & {*lines[0]})


def labelled_beside(path: str | Path, classes: tuple[str, ...]) -> Domain | None:
    """The labelled images at the paths in such a file, as seen from it; None if some are not there."""
    where = Path(os.path.expanduser(path))
    pairs = _of_file(where, classes, "")
    files = [where.parent / name for name, _ in pairs]
    if not pairs or not all(file.is_file() for file in files):
        return None
    return load_paths(str(path), files, [name for name, _ in pairs], [label for _, label in pairs])
