"""Many files by one name: a pattern such as photos/2024-*/*.jpg, or the paths that standard input brings.

Patterns are quoted on the command line, or the shell replaces them by what they match: "photos/*.jpg".
"""

import glob
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tsadapt.cache import cache_root
from tsadapt.data.lists import load_paths, parse_line
from tsadapt.data.paths import absolute_path
from tsadapt.data.types import Domain
from tsadapt.errors import UserError
from tsadapt.files import write_atomically

__all__ = ["STANDARD_INPUT", "is_kept_list", "is_pattern", "kept_list", "load_standard_input", "matching"]

STANDARD_INPUT = "-"
"""The name of the paths on standard input."""

EXAMPLE = 'find photos/new -name "*.jpg" | tsadapt predict runs/photos -'

BRACES = re.compile(r"\{([^{}]*)\}")
RANGE = re.compile(r"(\d+)\.\.(\d+)")


def is_pattern(name: str) -> bool:
    """Whether a name that is no path may match several: with *, ?, […], or a choice or range in braces.

    >>> [is_pattern(name) for name in ("a/*.jpg", "shard-{000..012}.tar", "{a,b}.csv", "a.jpg")]
    [True, True, True, False]
    """
    return glob.has_magic(name) or any("," in part or RANGE.fullmatch(part) for part in BRACES.findall(name))


def matching(pattern: str) -> tuple[Path, list[str]]:
    """The folder before the first wildcard, and the paths inside it that match: files and folders, no hidden ones.

    `**` is any number of folders.
    """
    parts = Path(pattern).parts
    first = next(i for i, part in enumerate(parts) if is_pattern(part) and not Path(*parts[: i + 1]).exists())
    root = Path(*parts[:first])
    inside = os.path.join(*parts[first:])
    found = {path for one in expanded(inside) for path in glob.glob(one, root_dir=root, recursive=True)}
    return root, sorted(path.replace(os.sep, "/") for path in found)


def expanded(pattern: str) -> Iterator[str]:
    """The patterns that braces stand for.

    >>> [*expanded("a-{008..010}.{tar,tgz}")][:3]
    ['a-008.tar', 'a-008.tgz', 'a-009.tar']
    """
    match = next((m for m in BRACES.finditer(pattern) if "," in m[1] or RANGE.fullmatch(m[1])), None)
    if match is None:
        yield pattern
        return
    for one in _choices(match[1]):
        yield from expanded(f"{pattern[: match.start()]}{one}{pattern[match.end() :]}")


def _choices(inner: str) -> list[str]:
    numbers = RANGE.fullmatch(inner)
    if numbers is None:
        return inner.split(",")
    width = len(numbers[1])
    return [str(n).zfill(width) for n in range(int(numbers[1]), int(numbers[2]) + 1)]


def load_standard_input() -> Domain:
    """The images whose paths standard input brings, one a line, with labels on all lines or on none.

    Paths are relative to the current folder. As in a list file, a path may contain spaces if it ends in an image
    suffix, and lines that begin with # are comments. Paths that end in NUL, as of `find -print0`, have no labels.
    """
    pairs = _pairs()
    labels = [label for _, label in pairs]
    if None in labels and any(labels):
        path = pairs[labels.index(None)][0]
        raise UserError(f"Standard input: {path!r} has no label but other lines do. Label every line, or none.")
    paths = [path for path, _ in pairs]
    texts = None if labels[0] is None else [label or "" for label in labels]
    return load_paths("standard input", [absolute_path(path) for path in paths], paths, texts)


def kept_list() -> str:
    """The path of a list file with what standard input brought: the name that a config has for it.

    Its name depends on its content, so that the same paths are the same data.
    """
    load_standard_input()  # says what is wrong with it
    quoted = ((absolute_path(path), label) for path, label in _pairs())
    text = "".join(f"{_quoted(str(path))}{'' if label is None else f' {_quoted(label)}'}\n" for path, label in quoted)
    path = _lists() / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.txt"
    if not path.is_file():
        write_atomically(path, text)
    return str(absolute_path(path))


def is_kept_list(path: Path) -> bool:
    """Whether a list file is what standard input once brought."""
    return path.parent == _lists()


def _lists() -> Path:
    return absolute_path(cache_root() / "lists")


def _quoted(text: str) -> str:
    return json.dumps(text)


@cache
def _pairs() -> list[tuple[str, str | None]]:
    """Paths and labels; standard input can be read once."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UserError(f"Standard input is a terminal, expected paths of images, one a line. For example: {EXAMPLE}")
    data = sys.stdin.buffer.read()
    pairs: list[tuple[str, str | None]]
    if b"\0" in data:
        pairs = [(os.fsdecode(part), None) for part in data.split(b"\0") if part]
    else:
        lines = os.fsdecode(data.removeprefix(b"\xef\xbb\xbf")).splitlines()
        pairs = [parse_line(line) for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not pairs:
        raise UserError(f"Standard input is empty, expected paths of images, one a line. For example: {EXAMPLE}")
    return pairs
