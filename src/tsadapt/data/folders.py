"""A folder of images: subfolders are classes; a flat folder has no labels."""

import os
import unicodedata
from pathlib import Path

import torch

from tsadapt.data.images import SUFFIXES, ImageFiles
from tsadapt.data.paths import display_path
from tsadapt.data.types import Domain
from tsadapt.errors import UserError, counted, few

__all__ = ["is_image", "load_folder"]


def load_folder(root: Path, name: str | None = None) -> Domain:
    """The images below `root`, sorted by class and path; its direct subfolders are the classes.

    Other files are ignored and listed in the notes; hidden files are ignored silently. Images next to the class folders
    belong to no class: they are ignored and listed, too.
    """
    name = name or str(root)
    flat: list[str] = []
    classes: dict[str, list[str]] = {}
    strays: list[str] = []
    for path in sorted(_files(root)):
        top, slash, _ = path.partition("/")
        if not is_image(path):
            strays.append(path)
        elif slash:
            classes.setdefault(top, []).append(path)
        else:
            flat.append(path)
    notes = []
    if strays:
        notes.append(f"{name}: ignored {counted(len(strays), 'file')} without an image suffix: {few(strays)}.")
    if not classes:
        if not flat:
            raise UserError(f"{name} has no images. Expected files that end in {few(SUFFIXES)}.")
        return Domain(name, ImageFiles(root / p for p in flat), row_names=tuple(map(_shown, flat)), notes=tuple(notes))
    if flat:
        notes.append(f"{name}: ignored {counted(len(flat), 'image')} outside the class folders: {few(flat)}.")
    empty = sorted(
        entry.name
        for entry in os.scandir(root)
        if entry.is_dir() and entry.name not in classes and not entry.name.startswith(".")
    )
    if empty:
        notes.append(f"{name}: {counted(len(empty), 'folder')} without images: {few(empty)}.")
    _refuse_nesting(root, name, classes)
    found = sorted(classes)
    rows = [path for c in found for path in classes[c]]
    y = torch.tensor([i for i, c in enumerate(found) for _ in classes[c]])
    return Domain(
        name,
        ImageFiles(root / p for p in rows),
        y,
        tuple(map(_shown, found)),
        row_names=tuple(map(_shown, rows)),
        notes=tuple(notes),
    )


def _refuse_nesting(root: Path, name: str, classes: dict[str, list[str]]) -> None:
    """Raise if the folders seem to be one level above the classes: no images in them, and the same folders in each."""
    inner = []
    for paths in classes.values():
        if any(path.count("/") < 2 for path in paths):
            return
        inner.append(sorted({path.split("/")[1] for path in paths}))
    if len(inner[0]) > 1 and all(folders == inner[0] for folders in inner):
        tops = sorted(classes)
        raise UserError(
            f"{name} has no images directly in its {counted(len(tops), 'folder')} ({few(tops)}), only in the folders"
            f" below ({few(inner[0])}). Expected class folders. Did you mean {display_path(root / tops[0])}?"
        )


def is_image(path: str) -> bool:
    """Whether a file has an image suffix."""
    return path.lower().endswith(SUFFIXES)


def _shown(path: str) -> str:
    """A name for display and comparison: Unicode in composed form (NFC), invalid UTF-8 escaped."""
    return unicodedata.normalize("NFC", os.fsencode(path).decode("utf-8", "backslashreplace"))


def _files(root: Path, inside: str = "", above: frozenset[str] = frozenset()) -> list[str]:
    """Every file below `root`, relative to it, with slashes; links are followed, except in circles."""
    here = os.path.join(root, inside)
    real = os.path.realpath(here)
    if real in above:
        return []
    found: list[str] = []
    with os.scandir(here) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = f"{inside}/{entry.name}" if inside else entry.name
            if entry.is_dir():
                found += _files(root, path, above | {real})
            else:
                found.append(path)
    return found
