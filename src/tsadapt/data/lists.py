"""List files: a path and an optional label on each line."""

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tsadapt.data.images import SUFFIXES, ImageFiles
from tsadapt.data.paths import display_path, path_text
from tsadapt.data.reading import oddity, reading
from tsadapt.data.rows import as_rows
from tsadapt.data.types import Domain
from tsadapt.errors import UserError, counted, few

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LISTS", "class_indices", "list_text", "load_list", "load_paths", "parse_line", "read_list"]

LISTS = (".txt", ".lst", ".list")
"""Suffixes of list files."""

LONGEST_NUMBER = 18
"""Digits of a label that is a number; a longer one is a name."""

LINE = re.compile(
    rf"^(?P<path>.*(?:{'|'.join(re.escape(s) for s in SUFFIXES)}))(?:[\s,]+(?P<label>.*\S))?\s*$", re.IGNORECASE
)


def parse_line(line: str) -> tuple[str, str | None]:
    r"""Path and label of a line. Both may contain spaces: the path ends at its image suffix, or else at the last space.

    A path in double quotes is a JSON string, and so may be its label: they can contain any character.

    >>> parse_line("my photos/a 1.jpg mobile phone")
    ('my photos/a 1.jpg', 'mobile phone')
    >>> parse_line("scan-17 3"), parse_line("a.png")
    (('scan-17', '3'), ('a.png', None))
    >>> parse_line(r'"two\nlines.png" "cat"')
    ('two\nlines.png', 'cat')
    """
    line = line.strip()
    if quoted := _quoted(line):
        path, rest = quoted
        label = _quoted(rest)
        return path, label[0] if label and not label[1] else rest or None
    match = LINE.match(line)
    if match:
        return match["path"], match["label"]
    path, *last = line.rsplit(None, 1)
    return path.strip(), last[0] if last else None


def _quoted(text: str) -> tuple[str, str] | None:
    """The JSON string at the start of a text, and what follows after spaces or a comma; None if there is none."""
    if not text.startswith('"'):
        return None
    try:
        string, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return None
    rest = text[end:].lstrip(" \t,")
    return (string, rest) if not rest or len(rest) < len(text) - end else None


def read_list(path: Path) -> list[tuple[str, str | None]]:
    """The parsed lines of a list file, without empty lines and comments (#)."""
    with reading(display_path(path), "UTF-8 text with a path and an optional label on each line"):
        text = path.read_text(encoding="utf-8-sig")
    lines = [parse_line(line) for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        raise UserError(f"{display_path(path)} is empty. Expected a path and an optional label on each line.")
    return lines


def load_list(path: Path, name: str | None = None, place: Callable[[str], Path] | None = None) -> Domain:
    """A domain from a list file, with labels on all lines or on none.

    Paths are relative to the file, unless `place` finds them. If labels are numbers and each number has a folder of its
    own, the folders name the classes: a list and a folder of the same data have the same classes.
    """
    name = name or str(path)
    lines = read_list(path)
    paths, labels = [p for p, _ in lines], [label for _, label in lines]
    where = place or (lambda p: path.parent / p)
    if None in labels and any(labels):
        path_without = paths[labels.index(None)]
        raise UserError(f"{name}: {path_without!r} has no label but other lines do. Label every line, or none.")
    texts = None if labels[0] is None else [path_text(label or "") for label in labels]
    return load_paths(name, [where(p) for p in paths], paths, texts)


def load_paths(
    name: str,
    files: Sequence[Path],
    row_names: Sequence[str],
    labels: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
) -> Domain:
    """A domain of image files. The notes list missing ones, and what is no file (a pipe, a folder): that is skipped.

    `row_names` are the files as they were written, and `ids` other names for the rows.
    """
    absent = [row for row, file in enumerate(files) if not os.path.isfile(file)]
    odd = {row: what for row in absent if (what := oddity(files[row]))}
    missing = [row for row in absent if row not in odd]
    shown = [path_text(row_name) for row_name in row_names]
    notes = []
    if odd:
        listed = few(f"{shown[row]} ({what})" for row, what in odd.items())
        notes.append(f"{name}: ignored {counted(len(odd), 'path')} without a readable file: {listed}.")
    if missing:
        lost = few(shown[row] for row in missing)
        notes.append(f"{name}: {len(missing)} of {counted(len(files), 'file')} not found: {lost}.")
    if absent and len(absent) == len(files):
        place = path_text(str(files[0]))
        first = f"The first, {place}, is {odd[0]}" if 0 in odd else f"The first was expected at {place}"
        raise UserError(f"{name}: none of the {counted(len(files), 'file')} exists. {first}.")
    rows = [row for row in range(len(files)) if row not in odd]
    names = shown if ids is None else ids
    domain = Domain(
        name, ImageFiles(files[row] for row in rows), row_names=tuple(names[row] for row in rows), notes=tuple(notes)
    )
    if labels is None:
        return domain
    y, classes = class_indices([row_names[row] for row in rows], [labels[row] for row in rows])
    return replace(domain, y=y, classes=classes)


def class_indices(paths: Sequence[str], labels: Sequence[str]) -> "tuple[Tensor, tuple[str, ...]]":
    """Labels as indices, and the class names: of numbers with a folder each, the folders."""
    numbers = all(label.isdecimal() and len(label) <= LONGEST_NUMBER for label in labels)
    found = sorted(set(labels), key=int) if numbers else sorted(set(labels))
    place = {label: i for i, label in enumerate(found)}
    y = as_rows(np.array([place[label] for label in labels]))
    if numbers:
        folders: dict[str, set[str]] = {label: set() for label in found}
        for p, label in zip(paths, labels, strict=True):
            folders[label].add(path_text(Path(p).parent.name))
        names = [next(iter(f)) for f in folders.values() if len(f) == 1]
        if len(set(names)) == len(found) and all(names):
            return y, tuple(names)
    return y, tuple(found)


def list_text(domain: Domain, rows: list[int], folder: Path) -> str:
    """The text of a list file, to be saved in `folder`, with some rows of a domain of image files.

    Whatever would not be read back as it is, such as a name with a line break, is quoted.
    """
    files = domain.x
    if not isinstance(files, ImageFiles) or files.spans is not None:
        raise UserError(f"{domain.name} does not consist of image files, so it cannot be written as a list file.")
    here = os.path.realpath(folder)  # as the list will be read: .. does not go back through a link
    lines = []
    for row in rows:
        path = os.path.relpath(files.paths[row], here)
        label = None if domain.y is None or domain.classes is None else domain.classes[int(domain.y[row])]
        parts = [path] if label is None else [path, label]
        line = " ".join(parts)
        if not line.isprintable() or line.startswith("#") or parse_line(line) != (path, label):
            line = " ".join(map(json.dumps, parts))
        lines.append(f"{line}\n")
    return "".join(lines)
