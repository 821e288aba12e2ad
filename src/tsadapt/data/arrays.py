"""Arrays: .npz and .npy files, and the same in memory."""

import math
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from tsadapt.data.paths import valid_text
from tsadapt.data.reading import reading, reason
from tsadapt.data.rows import as_rows
from tsadapt.data.types import Dataset, Domain
from tsadapt.errors import UserError, unknown

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "ARRAYS",
    "from_arrays",
    "label_indices",
    "load_array",
    "read_arrays",
    "vectors",
]

ARRAYS = (".npz", ".npy")
KEYS = {"classes", *(f"{split}{key}" for split in ("", "train_", "test_") for key in ("x", "y", "names"))}
"""Names of the arrays in an .npz file."""
DEFLATE = 1032
"""The most bytes that one compressed byte of an .npz file can stand for."""


def load_array(path: Path, name: str | None = None) -> Dataset:
    """A dataset from an .npz with `x` and optional `y`, `classes` and `names` (of the rows), or from a bare .npy.

    Images are recognised by their shape, (N, H, W), (N, H, W, channels) or (N, channels, H, W), with integers from 0
    to 255 or fractions from 0 to 1; (N, K) are feature vectors. Keys train_x, train_y, test_x, test_y give a split.
    """
    name = name or str(path)
    arrays = read_arrays(path, name)
    classes = arrays.get("classes")
    if {"train_x", "test_x"} <= set(arrays):
        train, test = (
            _named(from_arrays(name, arrays[f"{split}_x"], arrays.get(f"{split}_y"), classes, split), names)
            for split, names in ((split, arrays.get(f"{split}_names")) for split in ("train", "test"))
        )
        return Dataset(train, test)
    if "x" not in arrays:
        found = ", ".join(arrays) or "no arrays"
        raise UserError(f"{name} contains {found}. Expected an array named x, or both train_x and test_x.")
    whole = _named(from_arrays(name, arrays["x"], arrays.get("y"), classes), arrays.get("names"))
    return Dataset(whole, whole)


def read_arrays(path: Path, name: str) -> dict[str, np.ndarray]:
    """The arrays of an .npz by name, or `x` of a bare .npy.

    Nothing is allocated for a header that promises more than the file holds, and nothing pickled is loaded.
    """
    arrays: dict[str, np.ndarray] = {}
    with reading(name, f"a complete {path.suffix} file of NumPy, without pickled objects"), path.open("rb") as file:
        if file.read(2) != b"PK":
            file.seek(0)
            return {"x": _read_array(file, os.fstat(file.fileno()).st_size)}
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                key = info.filename.removesuffix(".npy")
                if key.endswith("_index"):
                    continue
                if key not in KEYS:
                    raise UserError(f"{name}: {unknown('array', key, sorted(KEYS))}")
                if key in arrays:
                    raise UserError(f"{name} contains two arrays named {key}. Expected each name once.")
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError(f"{info.filename} is compressed by another method than NumPy's")
                with archive.open(info) as member:
                    arrays[key] = _read_array(member, min(info.file_size, DEFLATE * info.compress_size))
    return arrays


def _read_array(file: IO[bytes], size: int) -> np.ndarray:
    """The array of an .npy file, which has at most `size` bytes."""
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(file)
    if dtype.hasobject:
        raise ValueError("it contains pickled objects")
    promised, rest = math.prod(shape) * max(dtype.itemsize, 1), size - file.tell()
    if min(shape, default=0) < 0 or promised > rest:
        raise ValueError(f"its header promises an array of shape {shape} and dtype {dtype}, but {rest:,} bytes follow")
    file.seek(0)
    array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    if file.read(1):  # also makes a member of an archive compare its checksum
        raise ValueError(f"more bytes follow its array of shape {shape}")
    return array


def _named(domain: Domain, names: np.ndarray | None) -> Domain:
    """The domain with names for its rows."""
    if names is None:
        return domain
    if names.shape != (len(domain),):
        raise UserError(
            f"{domain.name}: the array names has shape {names.shape}. Expected ({len(domain)},), one name per row."
        )
    return replace(domain, row_names=_texts(domain.name, "names", names))


def _texts(name: str, key: str, values: Any) -> tuple[str, ...]:
    """Names in an array as text; bytes are UTF-8."""
    values = np.asarray(values)
    if values.ndim != 1:
        raise UserError(f"{name}: {key} has shape {values.shape}. Expected one dimension, with one name per entry.")
    try:
        texts = [one.decode("utf-8") if isinstance(one, bytes) else str(one) for one in values.tolist()]
    except (ValueError, SystemError) as error:  # the latter for numbers that are no characters
        raise UserError(f"{name}: {key} cannot be read as text: {reason(error)}. Expected UTF-8 text.") from error
    return tuple(map(valid_text, texts))


def vectors(x: np.ndarray) -> "Tensor":
    """Rows of numbers as float32, or as float64 where that would lose digits: they are cut after standardising.

    >>> vectors(np.array([[0.5]])).dtype, vectors(np.array([[1700000000.25]])).dtype
    (torch.float32, torch.float64)
    """
    with np.errstate(over="ignore"):
        short = x.astype(np.float32)
    long = x.astype(np.float64)
    lossless = bool((np.isnan(long) | (short == long)).all())
    return as_rows(np.ascontiguousarray(short if lossless else long))


def from_arrays(name: str, x: Any, y: Any = None, classes: Any = None, split: str = "all") -> Domain:
    """A domain from arrays. Labels are numbers or names; `classes` names the classes of numbers."""
    x = np.asarray(x)
    if x.dtype.kind not in "uifb":
        raise UserError(f"{name}: x has dtype {x.dtype}. Expected numbers.")
    if x.ndim > 1 and x.size == 0 and len(x):
        raise UserError(f"{name}: x has shape {x.shape}, so its rows are empty. Expected at least one value per row.")
    if x.ndim == 2:
        rows = vectors(x)
    elif x.ndim in (3, 4):
        rows = _images(name, x)
    else:
        raise UserError(
            f"{name}: x has shape {x.shape}. Expected (rows, features), or images: (rows, height, width), with channels"
            " last or second."
        )
    if y is None:
        return Domain(name, rows, split=split)
    labels, names = label_indices(name, np.asarray(y), classes)
    return Domain(name, rows, labels, names, split)


def _images(name: str, x: np.ndarray) -> "Tensor":
    """Images as uint8 (N, channels, H, W)."""
    if x.ndim == 3:
        x = x[:, None]
    elif x.shape[-1] in (1, 3) and x.shape[1] not in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    if x.shape[1] not in (1, 3):
        raise UserError(f"{name}: images have shape {x.shape[1:]}. Expected one or three channels, first or last.")
    low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 0.0)
    if not np.isfinite([low, high]).all():
        raise UserError(f"{name}: some pixels are not finite. Expected numbers from 0 to 255, or from 0 to 1.")
    if low < 0 or high > 255:
        raise UserError(f"{name}: pixels range from {low:g} to {high:g}. Expected 0 to 255, or fractions from 0 to 1.")
    if high <= 1:
        x = (x.astype(np.float32) * 255).round()
    return as_rows(np.ascontiguousarray(x).astype(np.uint8))


def label_indices(name: str, y: np.ndarray, classes: Any = None) -> "tuple[Tensor, tuple[str, ...]]":
    """Labels as indices, and the class names.

    >>> label_indices("pets", np.array(["dog", "cat", "dog"]))
    (tensor([1, 0, 1]), ('cat', 'dog'))
    """
    if y.ndim != 1:
        raise UserError(f"{name}: y has shape {y.shape}. Expected one dimension, with one label per row.")
    if y.dtype.kind not in "iufbUSOT":
        raise UserError(f"{name}: labels have dtype {y.dtype}. Expected whole numbers or names.")
    for row in _missing(y)[:1]:
        raise UserError(f"{name}: row {row} has no label. Label every row, or pass no labels.")
    for row in _too_large(y)[:1]:
        raise UserError(f"{name}: the label of row {row} has more than 18 digits. Expected smaller numbers or names.")
    if y.dtype.kind == "f" and (wild := np.flatnonzero(~(np.abs(y) < 2**53))).size:
        raise UserError(f"{name}: the label of row {wild[0]} is {y[wild[0]]:g}. Expected whole numbers or names.")
    if y.dtype.kind == "f" and (y == np.round(y)).all():
        y = y.astype(np.int64)
    if classes is not None:
        names = _texts(name, "classes", classes)
        if len(set(names)) < len(names):
            raise UserError(f"{name}: classes contains duplicate names: {', '.join(names)}. Expected each name once.")
        if y.dtype.kind not in "iu" or (len(y) and (y.min() < 0 or y.max() >= len(names))):
            raise UserError(
                f"{name}: y must contain whole numbers from 0 to {len(names) - 1}, because classes has {len(names)}"
                " names."
            )
        return as_rows(y.astype(np.int64)), names
    if y.dtype.kind == "f":
        raise UserError(f"{name}: labels are fractions such as {y[0]:g}. Expected whole numbers or names.")
    try:
        found, index = np.unique(y, return_inverse=True)
    except TypeError as error:
        raise UserError(f"{name}: labels mix numbers and names. Expected only numbers or only names.") from error
    return as_rows(index.reshape(-1).astype(np.int64)), _texts(name, "y", found)


def _missing(y: np.ndarray) -> list[int]:
    """The rows without a label: None, NaN, or the missing value of pandas."""
    if y.dtype.kind == "O":
        return [
            row
            for row, label in enumerate(y)
            if not isinstance(label, str | int) and str(label) in ("None", "nan", "<NA>")
        ]
    return [*np.flatnonzero(np.isnan(y))] if y.dtype.kind == "f" else []


def _too_large(y: np.ndarray) -> list[int]:
    """The rows whose label is a Python number that no array of numbers can hold."""
    if y.dtype.kind != "O":
        return []
    return [
        row
        for row, label in enumerate(y)
        if isinstance(label, int | float) and not abs(label) < (10**18 if isinstance(label, int) else 2**53)
    ]
