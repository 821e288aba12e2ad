"""List files: a path and maybe a label on each line."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tsadapt.data.images import SUFFIXES, ImageFiles
from tsadapt.data.types import Domain
from tsadapt.errors import UserError

__all__ = ["LISTS", "list_text", "load_list", "parse_line", "read_list"]

LISTS = (".txt", ".lst", ".list")
"""What list files end in."""

LINE = re.compile(
    rf"^(?P<path>.*(?:{'|'.join(re.escape(s) for s in SUFFIXES)}))(?:[\s,]+(?P<label>.*\S))?\s*$", re.IGNORECASE
)


def parse_line(line: str) -> tuple[str, str | None]:
    """Path and label of a line. Both may have spaces: the path ends with its image suffix, or else at the last space.

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
    """The lines of a list file, parsed; empty ones and comments (#) are left out."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file in UTF-8: {error.reason}.") from error
    lines = [parse_line(line) for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        raise UserError(f"{path} is empty: expected a path, and a label behind it, on each line.")
    return lines


def load_list(path: Path, name: str | None = None, place: Callable[[str], Path] | None = None) -> Domain:
    """A domain from a list file: paths relative to it (or as `place` says), labels on all lines or on none.

    Numbers for labels get the names of the folders their images lie in, where each number has its own folder: so a list
    and a folder of the same data have the same classes.
    """
    name = name or str(path)
    lines = read_list(path)
    paths, labels = [p for p, _ in lines], [label for _, label in lines]
    where = place or (lambda p: path.parent / p)
    files = [where(p) for p in paths]
    missing = [p for p, file in zip(paths, files, strict=True) if not file.is_file()]
    if len(missing) == len(paths):
        raise UserError(f"{path} names {len(paths)} files and none is there, the first at {files[0]}.")
    notes = () if not missing else (f"{len(missing)} of {len(paths)} files of {name} are not there: {missing[0]} …",)
    if all(label is None for label in labels):
        return Domain(name, ImageFiles(files), row_names=tuple(paths), notes=notes)
    for number, label in enumerate(labels, 1):
        if label is None:
            raise UserError(f"{path}: {paths[number - 1]!r} has no label while others have; give all one, or none.")
    y, classes = _classes(paths, [label or "" for label in labels])
    return Domain(name, ImageFiles(files), y, classes, row_names=tuple(paths), notes=notes)


def _classes(paths: list[str], labels: list[str]) -> tuple[Tensor, tuple[str, ...]]:
    """Labels as indices, and the names of the classes."""
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
    """Some rows of a domain of files as a list file that will lie in `folder`."""
    files = domain.x
    if not isinstance(files, ImageFiles) or files.spans is not None:
        raise UserError(f"{domain.name} is not made of image files of its own, so there is nothing to list.")
    lines = []
    for row in rows:
        relative = os.path.relpath(files.paths[row], folder)
        label = "" if domain.y is None or domain.classes is None else f" {domain.classes[int(domain.y[row])]}"
        lines.append(f"{relative}{label}\n")
    return "".join(lines)
