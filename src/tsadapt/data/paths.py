"""Paths of data: one absolute spelling for each, and a short one for messages."""

import os
import unicodedata
from pathlib import Path

from tsadapt.errors import UserError

__all__ = ["absolute_path", "by_file_name", "display_path", "path_text", "valid_text"]


def absolute_path(path: str | Path) -> Path:
    """The absolute path, with ~, .. and symbolic links resolved; the path need not exist.

    A link to a file keeps its own name and folder: its suffix tells the format, and the paths in a list file are
    relative to its folder.
    """
    if "\0" in str(path):
        raise UserError(f"{str(path)!r} contains a NUL character. Expected the path of a file or folder.")
    path = Path(os.path.expanduser(path))
    if path.is_file():
        return Path(os.path.realpath(path.parent), path.name)
    return Path(os.path.realpath(path))


def display_path(path: str | Path) -> str:
    """A path for messages: relative to the current folder if it lies inside, else as given.

    >>> display_path(Path.cwd() / "photos" / "new"), display_path("../photos")
    ('photos/new', '../photos')
    """
    full, here = absolute_path(path), Path.cwd()
    return valid_text(str(full.relative_to(here) if full.is_relative_to(here) else path))


def path_text(path: str) -> str:
    """A path for display and comparison: `valid_text`, with Unicode in composed form (NFC)."""
    return unicodedata.normalize("NFC", valid_text(path))


def by_file_name(path: str) -> tuple[str, str]:
    """The sort key of image files: the file's own name, then its path.

    Target images lie in class folders for evaluation only: moving one to another class must not change its place.

    >>> sorted(["cat/2.png", "dog/1.png"], key=by_file_name)
    ['dog/1.png', 'cat/2.png']
    """
    return path.rpartition("/")[2], path


def valid_text(path: str) -> str:
    r"""Text that can be written to any file: bytes that are no UTF-8, which Python keeps as surrogates, are escaped.

    >>> valid_text(os.fsdecode(b"\xff.png"))
    '\\xff.png'
    """
    try:
        return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # surrogates that stand for no byte
        return path.encode("utf-8", "backslashreplace").decode("utf-8")
