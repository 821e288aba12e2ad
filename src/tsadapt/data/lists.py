"""List files: a path and an optional label on each line."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tsadapt.data.images import SUFFIXES, ImageFiles
from tsadapt.data.paths import display_path
from tsadapt.data.types import Domain
from tsadapt.errors import UserError, counted, few

__all__ = ["LISTS", "list_text", "load_list", "load_paths", "parse_line", "read_list"]

LISTS = (".txt", ".lst", ".list")
"""Suffixes of list files."""

LINE = re.compile(
    rf"^(?P<path>.*(?:{'|'.join(re.escape(s) for s in SUFFIXES)}))(?:[\s,]+(?P<label>.*\S))?\s*$", re.IGNORECASE
)


def parse_line(line: str) -> tuple[str, str | None]:
    """Path and label of a line. Both may contain spaces: the path ends at its image suffix, or else at the last space.

    >>> parse_line("my photos/a 1.jpg mobile phone")
    ('my photos/a 1.jpg', 'mobile phone')
    >>> parse_line("scan-17 3"), parse_line("a.png")
    (('scan-17', '3'), ('a.png', None))
    """
    line = line.strip()
    match = LINE.match(line)
    if match:
        return match["path"], match["label"]
    path, *label = line.rsplit(None, 1)
    return path.strip(), label[0] if label else None


def read_list(path: Path) -> list[tuple[str, str | None]]:
    """The parsed lines of a list file, without empty lines and comments (#)."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{display_path(path)} is not valid UTF-8 text: {error.reason}. Expected a path and a label per line."
        ) from error
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
    domain = load_paths(name, [where(p) for p in paths], paths)
    if labels[0] is None:
        return domain
    y, classes = _classes(paths, [label or "" for label in labels])
    return replace(domain, y=y, classes=classes)


def load_paths(name: str, files: Sequence[Path], row_names: Sequence[str]) -> Domain:
    """A domain of unlabelled image files; missing ones are listed in the notes."""
    missing = [row for row, file in enumerate(files) if not file.is_file()]
    if missing and len(missing) == len(files):
        raise UserError(
            f"{name}: none of the {counted(len(files), 'file')} exists. The first was expected at {files[0]}."
        )
    lost = few(row_names[row] for row in missing)
    notes = (f"{name}: {len(missing)} of {counted(len(files), 'file')} not found: {lost}.",) if missing else ()
    return Domain(name, ImageFiles(files), row_names=tuple(row_names), notes=notes)


def _classes(paths: list[str], labels: list[str]) -> tuple[Tensor, tuple[str, ...]]:
    """Labels as indices, and the class names."""
    numbers = all(label.isdecimal() for label in labels)
    found = sorted(set(labels), key=int) if numbers else sorted(set(labels))
    place = {label: i for i, label in enumerate(found)}
    y = torch.from_numpy(np.array([place[label] for label in labels]))
    if numbers:
        folders: dict[str, set[str]] = {label: set() for label in found}
        for p, label in zip(paths, labels, strict=True):
            folders[label].add(Path(p).parent.name)
        names = [next(iter(f)) for f in folders.values() if len(f) == 1]
        if len(set(names)) == len(found) and all(names):
            return y, tuple(names)
    return y, tuple(found)


def list_text(domain: Domain, rows: list[int], folder: Path) -> str:
    """The text of a list file, to be saved in `folder`, with some rows of a domain of image files."""
    files = domain.x
    if not isinstance(files, ImageFiles) or files.spans is not None:
        raise UserError(f"{domain.name} does not consist of image files, so it cannot be written as a list file.")
    lines = []
    for row in rows:
        relative = os.path.relpath(files.paths[row], folder)
        label = "" if domain.y is None or domain.classes is None else f" {domain.classes[int(domain.y[row])]}"
        lines.append(f"{relative}{label}\n")
    return "".join(lines)
