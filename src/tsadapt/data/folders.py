"""A folder of images: class folders give labels, a flat folder has none."""

import os
import unicodedata
from pathlib import Path

import torch

from tsadapt.data.images import SUFFIXES, ImageFiles
from tsadapt.data.types import Domain
from tsadapt.errors import UserError, counted, few

__all__ = ["is_image", "load_folder"]


def load_folder(root: Path, name: str | None = None) -> Domain:
    """The images below `root`, sorted by class and path; the folders right below it are the classes.

    Files that are no images are passed over and named in the notes; hidden ones are not looked at. Images right in
    `root` beside class folders belong to no class, and are passed over too.
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
        notes.append(f"{name}: {counted(len(strays), 'file')} not called like an image, passed over: {few(strays)}.")
    if not classes:
        if not flat:
            raise UserError(f"{name} has no images: expected files ending in {', '.join(SUFFIXES[:5])} … below it.")
        return Domain(name, ImageFiles(root / p for p in flat), row_names=tuple(map(_shown, flat)), notes=tuple(notes))
    if flat:
        notes.append(f"{name}: {counted(len(flat), 'image')} beside the class folders, passed over: {few(flat)}.")
    empty = sorted(
        entry.name
        for entry in os.scandir(root)
        if entry.is_dir() and entry.name not in classes and not entry.name.startswith(".")
    )
    if empty:
        notes.append(f"{name}: {counted(len(empty), 'folder')} without any image: {few(empty)}.")
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
    """Say so if the folders are a level above the classes: none has an image itself, and all have the same folders."""
    inner = []
    for paths in classes.values():
        if any(path.count("/") < 2 for path in paths):
            return
        inner.append(sorted({path.split("/")[1] for path in paths}))
    if len(inner[0]) > 1 and all(folders == inner[0] for folders in inner):
        tops = sorted(classes)
        raise UserError(
            f"{name} has {counted(len(tops), 'folder')} ({few(tops)}) without images of their own, each with the same"
            f" {len(inner[0])} folders of images ({few(inner[0])}): did you mean {root / tops[0]}?"
        )


def is_image(path: str) -> bool:
    """Whether a file is called like an image."""
    return path.lower().endswith(SUFFIXES)


def _shown(path: str) -> str:
    """A name as it is shown and compared: composed as people type it, with bytes that are no UTF-8 spelt out."""
    return unicodedata.normalize("NFC", os.fsencode(path).decode("utf-8", "backslashreplace"))


def _files(root: Path, inside: str = "", above: frozenset[str] = frozenset()) -> list[str]:
    """Every file below `root`, as a path relative to it with slashes; links are followed, circles are not."""
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
