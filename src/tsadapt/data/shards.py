"""Images in tar archives, read in place without unpacking: shards in the layout of webdataset, or packed folders.

A sample of webdataset is a group of members with one name before the first dot: cat-07.jpg, cat-07.cls, cat-07.json.
"""

import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tsadapt.data.images import SUFFIXES, ImageFiles
from tsadapt.data.lists import class_indices
from tsadapt.data.paths import by_file_name, path_text
from tsadapt.data.reading import reading
from tsadapt.data.rows import as_rows
from tsadapt.data.tables import LABELS
from tsadapt.data.types import Domain, Roles
from tsadapt.errors import UserError, counted, few

__all__ = ["SHARDS", "Member", "load_shards", "members"]

SHARDS = (".tar",)
LABEL = "cls"
"""What webdataset calls the member with a sample's label."""

LONGEST_LABEL = 1 << 20
"""Bytes of a member with a label; a longer one is none."""


@dataclass(frozen=True)
class Member:
    """A regular file in an archive: its path, and where its bytes are; None for a link or a sparse file."""

    path: str
    span: tuple[int, int] | None


def members(archive: Path, name: str) -> Iterator[Member]:
    """The files of an uncompressed archive, without folders and hidden files."""
    expected = "a complete, uncompressed tar archive: download or pack it again"
    with reading(name, expected), tarfile.open(archive, "r:") as tar:
        for member in tar:
            if member.size < 0:  # the next member would be this one again, for ever
                raise tarfile.ReadError(f"{member.name} has a size of {member.size} bytes")
            parts = [part for part in member.name.split("/") if part not in ("", ".")]
            if member.isdir() or not parts or any(part.startswith(".") for part in parts):
                continue
            whole = member.isfile() and member.sparse is None
            yield Member("/".join(parts), (member.offset_data, member.size) if whole else None)


@dataclass(frozen=True)
class _Sample:
    """An image in an archive, and its companions by their extensions."""

    archive: Path
    path: str
    span: tuple[int, int]
    others: dict[str, tuple[int, int]]

    def read(self, extension: str) -> bytes:
        """The bytes of a companion."""
        offset, length = self.others[extension]
        if length > LONGEST_LABEL:
            raise UserError(f"{self.archive.name}: the {extension} of {self.path} has {length:,} bytes, expected text.")
        with self.archive.open("rb") as file:
            file.seek(offset)
            return file.read(length)


def load_shards(archives: Sequence[Path], name: str, roles: Roles) -> Domain:
    """The images of one or several archives, in the order of their names.

    The label of a sample is its member .cls, or else the entry label, class, target or y of its .json; `roles` name
    another extension or entry. Images without any companions have the class of their top folder, if they have one.
    """
    samples, odd = list[_Sample](), list[str]()
    for archive in archives:
        shown = name if len(archives) == 1 else archive.name
        mine, bad = _samples(archive, shown)
        samples += mine
        odd += bad
    if not samples:
        raise UserError(f"{name} has no images. Expected members that end in {few(SUFFIXES)}.")
    plain = [sample.path for sample in samples]
    twice = len(set(plain)) < len(plain)
    rows = [(f"{s.archive.stem}/{s.path}" if twice else s.path, s) for s in samples]
    rows.sort(key=lambda row: by_file_name(row[0]))
    samples = [sample for _, sample in rows]
    texts = _labels(name, samples, roles)
    ids = _of_json(name, samples, roles.id) if roles.id is not None else None
    note = f"{name}: ignored {counted(len(odd), 'member')}, links or sparse files: {few(odd)}."
    domain = Domain(
        name,
        ImageFiles([s.archive for s in samples], [s.span for s in samples]),
        row_names=tuple(ids or (path_text(row) for row, _ in rows)),
        notes=(note,) if odd else (),
        id_column=None if ids is None else roles.id,
    )
    if texts is None:
        return domain
    if all(text.isdecimal() for text in texts):
        y, classes = class_indices([f"{text}/" for text in texts], texts)  # numbers in their order
        return replace(domain, y=y, classes=classes)
    found = sorted(set(texts))
    place = {text: i for i, text in enumerate(found)}
    return replace(domain, y=as_rows(np.array([place[text] for text in texts])), classes=tuple(found))


def _samples(archive: Path, name: str) -> tuple[list[_Sample], list[str]]:
    """The samples of an archive, and the members that cannot be read in place."""
    groups: dict[str, dict[str, Member]] = {}
    odd = list[str]()
    for member in members(archive, name):
        if member.span is None:
            odd.append(path_text(member.path))
            continue
        folder, slash, file = member.path.rpartition("/")
        key, _, extension = file.partition(".")
        groups.setdefault(f"{folder}{slash}{key}", {})[extension.lower()] = member
    found = list[_Sample]()
    for group in groups.values():
        images = [ext for ext in group if f".{ext}".endswith(SUFFIXES)]
        others = {ext: one.span for ext, one in group.items() if ext not in images and one.span is not None}
        if len(images) > 1 and others:
            raise UserError(f"{name}: {group[images[0]].path} and {group[images[1]].path} are images of one sample.")
        for ext in images:
            span = group[ext].span
            assert span is not None
            found.append(_Sample(archive, group[ext].path, span, others))
    return found, odd


def _labels(name: str, samples: list[_Sample], roles: Roles) -> list[str] | None:
    """The labels of all samples as text; None if they have none."""
    extensions = {ext for sample in samples for ext in sample.others}
    if roles.label is not None and roles.label in extensions:
        return _of_member(name, samples, roles.label)
    if roles.label is not None:
        return _of_json(name, samples, roles.label) if "json" in extensions or "label" in roles.needed else None
    if LABEL in extensions:
        return _of_member(name, samples, LABEL)
    if "json" in extensions:
        entries = _json(name, next(sample for sample in samples if "json" in sample.others))
        found = [key for key in entries if key.lower() in LABELS]
        return _of_json(name, samples, found[0]) if found else None
    return None if extensions else _folders(samples)


def _of_member(name: str, samples: list[_Sample], extension: str) -> list[str]:
    found = []
    for sample in samples:
        if extension not in sample.others:
            raise UserError(f"{name}: {sample.path} has no .{extension} beside it, but others do. Label all, or none.")
        with reading(f"{name}: the {extension} of {sample.path}", "a label as text"):
            text = sample.read(extension).decode("utf-8").strip()
        if not text:
            raise UserError(f"{name}: the {extension} of {sample.path} is empty. Expected a label.")
        found.append(path_text(text))
    return found


def _of_json(name: str, samples: list[_Sample], key: str) -> list[str]:
    found = []
    for sample in samples:
        value = _json(name, sample).get(key)
        if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
            raise UserError(
                f"{name}: {sample.path} has no {key!r}: expected a member .{key} beside it, or that entry in its .json."
            )
        found.append(path_text(str(value)))
    return found


def _json(name: str, sample: _Sample) -> dict[str, object]:
    if "json" not in sample.others:
        return {}
    with reading(f"{name}: the json of {sample.path}", "a JSON object"):
        values = json.loads(sample.read("json"))
        if not isinstance(values, dict):
            raise ValueError(f"it is a {type(values).__name__}")
    return values


def _folders(samples: list[_Sample]) -> list[str] | None:
    """The top folders of packed images, below what all have in common; None if some lie in none."""
    folders = [sample.path.split("/")[:-1] for sample in samples]
    while all(folders) and len({folder[0] for folder in folders}) == 1 and all(len(f) > 1 for f in folders):
        folders = [folder[1:] for folder in folders]
    return [path_text(folder[0]) for folder in folders] if all(folders) and len({f[0] for f in folders}) > 1 else None
