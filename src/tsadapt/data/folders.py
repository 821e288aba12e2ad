"""A folder of images: subfolders are classes; a flat folder has no labels."""

import os
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path

import numpy as np

from tsadapt.data.images import SUFFIXES, ImageFiles
from tsadapt.data.paths import by_file_name, display_path, path_text
from tsadapt.data.reading import oddity, reason
from tsadapt.data.rows import as_rows
from tsadapt.data.types import Domain
from tsadapt.errors import UserError, counted, few

__all__ = ["is_image", "load_files", "load_folder"]


def load_folder(root: Path, name: str | None = None) -> Domain:
    """The images below `root`, sorted by file name whatever their folder; its direct subfolders are the classes.

    Other files, pipes, devices and links in circles are ignored and listed in the notes; hidden files are ignored
    silently. Images next to the class folders belong to no class: they are ignored and listed, too.
    """
    files, odd = _files(root)
    domain = _domain(root, name or str(root), files, odd)
    return replace(domain, notes=(*domain.notes, *_without_images(root, name or str(root), domain, odd)))


def load_files(root: Path, paths: list[str], name: str) -> Domain:
    """The images among some paths below `root`, as if nothing else were there."""
    odd = {path: what for path in paths if (what := oddity(root / path)) not in (None, "a folder")}
    return _domain(root, name, [path for path in paths if path not in odd and not (root / path).is_dir()], odd)


def _domain(root: Path, name: str, files: list[str], odd: dict[str, str]) -> Domain:
    flat: list[str] = []
    classes: dict[str, list[str]] = {}
    strays: list[str] = []
    for path in sorted(files, key=by_file_name):
        top, slash, _ = path.partition("/")
        if not is_image(path):
            strays.append(path)
        elif slash:
            classes.setdefault(path_text(top), []).append(path)
        else:
            flat.append(path)
    notes = []
    if odd:
        listed = few(f"{path_text(path)} ({what})" for path, what in sorted(odd.items()))
        notes.append(f"{name}: ignored {counted(len(odd), 'path')} without a readable file: {listed}.")
    if strays:
        listed = few(map(path_text, strays))
        notes.append(f"{name}: ignored {counted(len(strays), 'file')} without an image suffix: {listed}.")
    if not classes:
        if not flat:
            shards = any(path.lower().endswith(".tar") for path in strays)
            hint = f' To read its tar archives: "{name}/*.tar", in quotes.' if shards else ""
            raise UserError(f"{name} has no images. Expected files that end in {few(SUFFIXES)}.{hint}")
        return Domain(
            name, ImageFiles(root / p for p in flat), row_names=tuple(map(path_text, flat)), notes=tuple(notes)
        )
    if flat:
        listed = few(map(path_text, flat))
        notes.append(f"{name}: ignored {counted(len(flat), 'image')} outside the class folders: {listed}.")
    _refuse_nesting(root, name, classes)
    found = sorted(classes)
    index = {path: i for i, c in enumerate(found) for path in classes[c]}
    rows = sorted(index, key=by_file_name)
    y = as_rows(np.array([index[path] for path in rows]))
    return Domain(
        name,
        ImageFiles(root / p for p in rows),
        y,
        tuple(found),
        row_names=tuple(map(path_text, rows)),
        notes=tuple(notes),
    )


def _without_images(root: Path, name: str, domain: Domain, odd: dict[str, str]) -> list[str]:
    """A remark on folders beside the class folders that have no images."""
    if domain.classes is None:
        return []
    empty = sorted(
        entry
        for entry in os.listdir(root)
        if path_text(entry) not in domain.classes
        and entry not in odd
        and not entry.startswith(".")
        and (root / entry).is_dir()
    )
    return [f"{name}: {counted(len(empty), 'folder')} without images: {few(map(path_text, empty))}."] if empty else []


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
            f" below ({few(map(path_text, inner[0]))}). Expected class folders. Did you mean"
            f" {display_path(root / tops[0])}?"
        )


def is_image(path: str) -> bool:
    """Whether a file has an image suffix."""
    return path.lower().endswith(SUFFIXES)


def _files(root: Path) -> tuple[list[str], dict[str, str]]:
    """Every regular file below `root`, relative to it, with slashes; and what else was found: path → what it is.

    Links are followed. Below each entry of `root` a folder is read only once, so that circles and webs of links end.
    """
    found: list[str] = []
    odd: dict[str, str] = {}
    folders: list[tuple[bool, str]] = []  # whether a link leads there, and the path: links come last

    def scan(inside: str, by_link: bool) -> None:
        empty = True
        with os.scandir(os.path.join(root, inside)) as entries:
            for entry in entries:
                empty = False
                path = f"{inside}/{entry.name}" if inside else entry.name
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    heappush(folders, (by_link, path))
                elif entry.is_file(follow_symlinks=False) or (what := oddity(entry.path)) is None:
                    found.append(path)
                elif what == "a folder":
                    heappush(folders, (True, path))
                else:
                    odd[path] = what
        if empty and is_image(inside):
            odd[inside] = "an empty folder"

    scan("", False)
    start = _identity(str(root))
    read: dict[str, set[tuple[int, int]]] = {}
    while folders:
        by_link, path = heappop(folders)
        once = read.setdefault(path.partition("/")[0], {start})
        try:
            this = _identity(os.path.join(root, path))
            if this in once:
                odd[path] = "a link to a folder that was read already"
            else:
                once.add(this)
                scan(path, by_link)
        except OSError as error:
            odd[path] = reason(error)
    return found, odd


def _identity(folder: str) -> tuple[int, int]:
    info = os.stat(folder)
    return info.st_dev, info.st_ino
