"""Datasets that the library `datasets` of Hugging Face saved on the disk (save_to_disk), read by pyarrow alone.

A folder holds Arrow files and their description in JSON; a folder of splits holds one such folder for each. Encoded
images are read in place, so nothing but labels and vectors is in memory.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tsadapt.data.arrays import from_arrays, label_indices
from tsadapt.data.images import ImageFiles
from tsadapt.data.paths import path_text
from tsadapt.data.reading import oddity, reading
from tsadapt.data.tables import LABELS, from_frame
from tsadapt.data.types import Dataset, Domain, Roles
from tsadapt.errors import UserError, few

__all__ = ["HUGGING_FACE", "is_saved", "load_saved"]

HUGGING_FACE = "hf"
"""What stands before the path of such a dataset: hf:PATH."""

STATE, INFO, SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
EXPECTED = "a dataset that save_to_disk of Hugging Face's datasets wrote"
LISTS = ("List", "LargeList", "Sequence")
"""Features that are lists."""


def is_saved(folder: Path) -> bool:
    """Whether a folder holds such a dataset, or splits of one."""
    return (folder / SPLITS).is_file() or (folder / STATE).is_file()


def load_saved(folder: Path, name: str, columns: tuple[str, ...] | None, roles: Roles) -> Dataset:
    """The dataset in a folder: its splits train and test if it has both, its only split, or all of it.

    A column of images, a column of lists of numbers, or columns of numbers are the rows. A column of class labels, or
    one named label, class, target or y has the classes, where `roles` name no other.
    """
    if not folder.exists():
        if (folder.parent / SPLITS).is_file():
            there = sorted(one.name for one in folder.parent.iterdir() if one.is_dir())
            raise UserError(f"{name}: there is no split {folder.name!r}. Available: {few(there)}.")
        raise UserError(f"{name} does not exist. Expected {EXPECTED}.")
    if not is_saved(folder):
        raise UserError(f"{name} has no {STATE} or {SPLITS}. Expected {EXPECTED}.")
    if (folder / STATE).is_file():
        whole = _domain(folder, name, "all", columns, roles)
        return Dataset(whole, whole)
    splits = _described(folder / SPLITS, name).get("splits")
    if not isinstance(splits, list) or not splits or not all(isinstance(one, str) for one in splits):
        raise UserError(f"{name}: {SPLITS} names no splits. Expected {EXPECTED}.")
    if len(splits) == 1:
        whole = _domain(folder / splits[0], name, "all", columns, roles)
        return Dataset(whole, whole)
    if not {"train", "test"} <= {*splits}:
        raise UserError(
            f"{name} has the splits {few(splits)}. Expected train and test; or name one: {name}/{splits[0]}"
        )
    train, test = (_domain(folder / split, name, split, columns, roles) for split in ("train", "test"))
    return Dataset(train, test)


def _described(path: Path, name: str) -> dict[str, Any]:
    with reading(f"{name}: {path.name}", f"a JSON object of {EXPECTED}"):
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError(f"it is a {type(values).__name__}")
    return values


@dataclass(frozen=True)
class _Part:
    """An Arrow file: its table, and the addresses of its bytes in memory."""

    path: Path
    table: Any
    start: int
    size: int


def _domain(folder: Path, name: str, split: str, columns: tuple[str, ...] | None, roles: Roles) -> Domain:
    features = _described(folder / INFO, name).get("features")
    if not isinstance(features, dict):
        raise UserError(f"{name}: {INFO} describes no features. Expected {EXPECTED}.")
    parts = [*_parts(folder, name)]
    images = [c for c, kind in features.items() if isinstance(kind, dict) and kind.get("_type") == "Image"]
    lists = [c for c, kind in features.items() if isinstance(kind, dict) and kind.get("_type") in LISTS]
    rows = images or lists
    if len(rows) > 1:
        raise UserError(
            f"{name} has {len(rows)} columns of {'images' if images else 'lists'}: {few(rows)}. Expected one."
        )
    if not rows:
        frame = _frame(parts, features)
        return replace(from_frame(name, frame, columns, roles), split=split)
    others = {c: kind for c, kind in features.items() if c not in rows}
    id_column = roles.find("id", others, name)
    ids = None if id_column is None else tuple(path_text(str(value)) for value in _column(parts, id_column))
    domain = Domain(
        name, _files(parts, images[0], name), split=split, row_names=ids, id_column=id_column
    ) if images else replace(
        from_arrays(name, _vectors(parts, lists[0], name), split=split), row_names=ids, id_column=id_column
    )  # fmt: skip
    if (label := _label_column(others, roles, name)) is None:
        return domain
    y, names = _column(parts, label), _class_names(others[label])
    if names is not None and all(value in (None, -1) for value in y):
        return domain
    indices, classes = label_indices(name, np.asarray(y), names)
    return replace(domain, y=indices, classes=classes)


def _parts(folder: Path, name: str) -> Iterator[_Part]:
    """The Arrow files of a dataset, in their order, mapped into memory."""
    try:
        import pyarrow as arrow
    except ImportError as error:
        raise UserError(f"{name}: Hugging Face datasets need an extra package: pip install 'tsadapt[hf]'.") from error
    state = _described(folder / STATE, name)
    if state.get("_indices_files"):
        raise UserError(
            f"{name} is a selection of other rows. Save it again: dataset.flatten_indices().save_to_disk(…)"
        )
    with reading(name, EXPECTED):
        files = [str(one["filename"]) for one in state["_data_files"]]
        if not files:
            raise ValueError("it has no data files")
    for file in files:
        path = folder / file
        if Path(file).name != file or not path.is_file():
            raise UserError(f"{name}: {path_text(file)} is {oddity(path) or 'missing'}. Expected {EXPECTED}.")
        with reading(f"{name}: {file}", "an Arrow file"):
            mapped = arrow.memory_map(str(path))
            whole = mapped.read_buffer()
            table = arrow.ipc.open_stream(whole).read_all()
        yield _Part(path, table, whole.address, whole.size)


def _column(parts: Sequence[_Part], column: str) -> list[Any]:
    return [value for part in parts for value in part.table.column(column).to_pylist()]


def _label_column(others: dict[str, Any], roles: Roles, name: str) -> str | None:
    """The column with the classes; None if there is none."""
    if roles.label is not None:
        return roles.find("label", others, name)
    found = [c for c, kind in others.items() if _class_names(kind) is not None]
    found = found or [c for c in others if c.lower() in LABELS and c != roles.id]
    if len(found) > 1:
        raise UserError(
            f"{name} has {len(found)} possible label columns: {few(found)}. Name one: --label-column {found[0]}"
        )
    return found[0] if found else None


def _class_names(kind: Any) -> list[str] | None:
    """The names of a ClassLabel; None for any other column."""
    if not isinstance(kind, dict) or kind.get("_type") != "ClassLabel":
        return None
    names = kind.get("names")
    return [str(one) for one in names] if isinstance(names, list) else None


def _frame(parts: Sequence[_Part], features: dict[str, Any]) -> Any:
    """A table without images and lists, with the names of its classes."""
    import pandas
    import pyarrow as arrow

    frame = arrow.concat_tables([part.table for part in parts]).to_pandas()
    for column, kind in features.items():
        if (names := _class_names(kind)) is not None and column in frame:
            codes = frame[column]
            known = codes.between(0, len(names) - 1)
            frame[column] = pandas.Series(
                [names[int(code)] if ok else None for code, ok in zip(codes, known, strict=True)], dtype=object
            )
    return frame


def _vectors(parts: Sequence[_Part], column: str, name: str) -> np.ndarray:
    """Lists of numbers of one length, as rows."""
    blocks = []
    for chunk in (chunk for part in parts for chunk in part.table.column(column).chunks if len(chunk)):
        values = chunk.flatten()
        width, rest = divmod(len(values), len(chunk))
        lengths = chunk.value_lengths() if hasattr(chunk, "value_lengths") else None
        even = lengths is None or all(length == width for length in lengths.to_pylist())
        if rest or not even or chunk.null_count:
            raise UserError(
                f"{name}: the lists in column {column!r} differ in length. Expected one length for all rows."
            )
        with reading(f"{name}: column {column!r}", "lists of numbers"):
            blocks.append(values.to_numpy(zero_copy_only=False).reshape(len(chunk), width))
    if not blocks:
        raise UserError(f"{name} has no rows. Expected at least one.")
    if len({block.shape[1] for block in blocks}) > 1:
        raise UserError(f"{name}: lists in column {column!r} differ in length. Expected one length for all.")
    return np.concatenate(blocks)


def _files(parts: Sequence[_Part], column: str, name: str) -> ImageFiles:
    """The encoded images of a column, where they lie in the Arrow files, or in the files that these name."""
    paths, spans = list[str](), list[tuple[int, int]]()
    with reading(f"{name}: column {column!r}", "encoded images"):
        for part in parts:
            for chunk in part.table.column(column).chunks:
                files = chunk.field("path").to_pylist()
                for place, file in zip(_places(part, chunk.field("bytes")), files, strict=True):
                    if place is None and file is None:
                        raise ValueError(f"row {len(paths)} has no image")
                    paths.append(str(part.path if place is not None else file))
                    spans.append(place or _whole_file(str(file)))
    return ImageFiles(paths, spans)


def _places(part: _Part, values: Any) -> Iterator[tuple[int, int] | None]:
    """Where each value lies in its file, as (offset, length); None for a value that is not there."""
    if not len(values):
        return
    _, offsets, data = values.buffers()
    wide = "large" in str(values.type)
    ends = np.frombuffer(offsets, np.int64 if wide else np.int32)[values.offset : values.offset + len(values) + 1]
    at = (0 if data is None else data.address) - part.start
    if data is not None and not 0 <= at <= part.size - data.size:
        raise ValueError("its Arrow files are compressed: save it again, without compression")
    for there, begin, end in zip(values.is_valid().to_pylist(), ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        yield (at + begin, end - begin) if there else None


def _whole_file(path: str) -> tuple[int, int]:
    return 0, Path(path).stat().st_size if oddity(path) is None and Path(path).exists() else 0
