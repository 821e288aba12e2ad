"""Paths of data: one absolute spelling for each, and a short one for messages."""

import os
from pathlib import Path

__all__ = ["absolute_path", "display_path"]


def absolute_path(path: str | Path) -> Path:
    """The absolute path, with ~, .. and symbolic links resolved; the path need not exist.

    A link to a file keeps its own name and folder: its suffix tells the format, and the paths in a list file are
    relative to its folder.
    """
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
    return str(full.relative_to(here)) if full.is_relative_to(here) else str(path)
