"""A folder of images: class folders give labels, a flat folder has none."""

import os
from pathlib import Path

import torch

from tsadapt.data.images import SUFFIXES, ImageFiles
from tsadapt.data.types import Domain
from tsadapt.errors import UserError, few

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
    for path in _files(root):
        top, slash, _ = path.partition("/")
        if not is_image(path):
            strays.append(path)
        elif slash:
            classes.setdefault(top, []).append(path)
        else:
            flat.append(path)
    notes = []
    if strays:
        notes.append(f"{name}: {_counted(strays, 'file')} not called like an image, passed over: {few(strays)}.")
    if not classes:
        if not flat:
            raise UserError(f"{name} has no images: expected files ending in {', '.join(SUFFIXES[:5])} … below it.")
        return Domain(name, ImageFiles(root / p for p in flat), row_names=tuple(flat), notes=tuple(notes))
    if flat:
        notes.append(f"{name}: {_counted(flat, 'image')} beside the class folders, passed over: {few(flat)}.")
    empty = sorted(
        entry.name
        for entry in os.scandir(root)
        if entry.is_dir() and entry.name not in classes and not entry.name.startswith(".")
    )
    if empty:
        notes.append(f"{name}: {_counted(empty, 'folder')} without any image: {few(empty)}.")
    found = tuple(sorted(classes))
    inner = _inner_folders(classes)
    if inner:
        raise UserError(
            f"{name} has the single class folder {found[0]!r}, which itself holds {len(inner)} folders of images"
            f" ({few(inner)}): did you mean {root / found[0]}?"
        )
    rows = [path for c in found for path in sorted(classes[c])]
    y = torch.tensor([i for i, c in enumerate(found) for _ in classes[c]])
    return Domain(name, ImageFiles(root / p for p in rows), y, found, row_names=tuple(rows), notes=tuple(notes))


def _inner_folders(classes: dict[str, list[str]]) -> list[str]:
    """The folders below a single class folder that holds no image itself: an extra level, and no class."""
    if len(classes) != 1:
        return []
    (paths,) = classes.values()
    if any(path.count("/") < 2 for path in paths):
        return []
    inner = sorted({path.split("/")[1] for path in paths})
    return inner if len(inner) > 1 else []


def is_image(path: str) -> bool:
    """Whether a file is called like an image."""
    return path.lower().endswith(SUFFIXES)


def _counted(things: list[str], what: str) -> str:
    return f"1 {what}" if len(things) == 1 else f"{len(things)} {what}s"


def _files(root: Path) -> list[str]:
    """Every file below `root`, as a path relative to it with slashes, sorted; links are followed, circles are not."""
    found: list[str] = []
    seen: set[str] = set()
    for folder, folders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        inside = Path(folder).relative_to(root)
        found += [(inside / f).as_posix() for f in files if not f.startswith(".")]
    return sorted(found)
