"""Arrays and tables: .npz, .npy, .csv and .parquet files, and the same in memory."""

import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tsadapt.data.types import Dataset, Domain
from tsadapt.errors import UserError, unknown

__all__ = ["ARRAYS", "TABLES", "from_arrays", "from_frame", "label_indices", "load_array", "load_table", "vectors"]

ARRAYS = (".npz", ".npy")
TABLES = (".csv", ".parquet")
LABELS = ("label", "class", "target", "y")
"""Names of the label column, in upper or lower case."""
MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
"""Spellings of a missing number in a CSV file."""


def load_array(path: Path, name: str | None = None) -> Dataset:
    """A dataset from an .npz with `x` and optional `y`, `classes` and `names` (of the rows), or from a bare .npy.

    Images are recognised by their shape, (N, H, W), (N, H, W, channels) or (N, channels, H, W), with integers from 0
    to 255 or fractions from 0 to 1; (N, K) are feature vectors. Keys train_x, train_y, test_x, test_y give a split.
    """
    name = name or str(path)
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                arrays = {"x": loaded}
            else:
                arrays = {key: loaded[key] for key in loaded.files if not key.endswith("_index")}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(
            f"{name} cannot be read: {error}. Expected a complete {path.suffix} file of NumPy, without pickled objects."
        ) from error
    known = {"classes", *(f"{split}{key}" for split in ("", "train_", "test_") for key in ("x", "y", "names"))}
    for key in arrays:
        if key not in known:
            raise UserError(f"{name}: {unknown('array', key, sorted(known))}")
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


def _named(domain: Domain, names: np.ndarray | None) -> Domain:
    """The domain with names for its rows."""
    if names is None:
        return domain
    if names.shape != (len(domain),):
        raise UserError(
            f"{domain.name}: the array names has shape {names.shape}. Expected ({len(domain)},), one name per row."
        )
    return replace(domain, row_names=tuple(map(str, names.tolist())))


def load_table(path: Path, columns: tuple[str, ...] | None = None, name: str | None = None) -> Dataset:
    """A dataset from a CSV or Parquet file; see `from_frame`."""
    import pandas

    name = name or str(path)
    try:
        frame = _read_csv(path) if path.suffix.lower() == ".csv" else pandas.read_parquet(path)
    except ImportError as error:
        raise UserError(f"{name}: Parquet files need an extra package: pip install 'tsadapt[tables]'.") from error
    except (ValueError, OSError) as error:
        first_line = str(error).splitlines()[0]
        raise UserError(f"{name} cannot be read as a table: {first_line}. Expected a CSV or Parquet file.") from error
    whole = from_frame(name, frame, columns)
    return Dataset(whole, whole)


def _read_csv(path: Path) -> Any:
    """The table. An empty label is missing; the label NA is a class of that name."""
    import pandas

    header = pandas.read_csv(path, nrows=0).columns
    missing = {c: [""] if str(c).lower() in LABELS else MISSING for c in header}
    return pandas.read_csv(path, keep_default_na=False, na_values=missing)


def from_frame(name: str, frame: Any, columns: tuple[str, ...] | None = None) -> Domain:
    """A domain from a pandas table of numbers, with an optional label column named label, class, target or y.

    `columns` are the expected features, by name: they are put into that order, and a missing or additional one is an
    error.
    """
    from pandas.api.types import is_numeric_dtype

    frame = frame.copy(deep=False)
    frame.columns = [str(c) for c in frame.columns]
    if not len(frame):
        raise UserError(f"{name} has no rows. Expected at least one.")
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise UserError(f"{name} has more than one column named {twice[0]!r}. Give each column its own name.")
    labels = _pop_labels(name, frame, columns or ())
    if columns is not None:
        missing, extra = [c for c in columns if c not in frame], [c for c in frame if c not in columns]
        if missing or extra:
            raise UserError(
                f"{name} does not have the model's columns. Missing: {', '.join(missing) or 'none'}. Unexpected:"
                f" {', '.join(extra) or 'none'}."
            )
        frame = frame[list(columns)]
    for column, values in frame.items():
        if not is_numeric_dtype(values):
            hint = f" If it contains the labels, rename it to {LABELS[0]!r}." if labels is None else ""
            raise UserError(
                f"{name}: column {column!r} is not numeric, for example {values.iloc[0]!r}. Expected numbers.{hint}"
            )
    if frame.shape[1] == 0:
        raise UserError(f"{name} has no feature columns. Expected at least one column of numbers besides the labels.")
    domain = from_arrays(name, frame.to_numpy(np.float64, na_value=np.nan), labels)  # nullable columns have NA
    return replace(domain, columns=tuple(frame.columns))


def _pop_labels(name: str, frame: Any, features: tuple[str, ...]) -> Any:
    """Remove the label column from a table and return its values; None if there is none or it is empty."""
    found = [c for c in frame.columns if c.lower() in LABELS and c not in features]
    if len(found) > 1:
        # All but one would be features that reveal the label.
        raise UserError(f"{name} has {len(found)} possible label columns: {', '.join(found)}. Keep only one.")
    if not found:
        return None
    labels = frame.pop(found[0])
    if labels.isna().all():
        return None
    if labels.isna().any():
        row = int(labels.isna().to_numpy().argmax())
        raise UserError(f"{name}: row {row} has no label but other rows do. Label every row, or remove the column.")
    return labels.to_numpy()


def vectors(x: np.ndarray) -> Tensor:
    """Rows of numbers as float32, or as float64 where that would lose digits: they are cut after standardising.

    >>> vectors(np.array([[0.5]])).dtype, vectors(np.array([[1700000000.25]])).dtype
    (torch.float32, torch.float64)
    """
    with np.errstate(over="ignore"):
        short = x.astype(np.float32)
    long = x.astype(np.float64)
    lossless = bool((np.isnan(long) | (short == long)).all())
    return torch.from_numpy(np.ascontiguousarray(short if lossless else long))


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


def _images(name: str, x: np.ndarray) -> Tensor:
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
    return torch.from_numpy(np.ascontiguousarray(x).astype(np.uint8))


def label_indices(name: str, y: np.ndarray, classes: Any = None) -> tuple[Tensor, tuple[str, ...]]:
    """Labels as indices, and the class names.

    >>> label_indices("pets", np.array(["dog", "cat", "dog"]))
    (tensor([1, 0, 1]), ('cat', 'dog'))
    """
    if y.ndim != 1:
        raise UserError(f"{name}: y has shape {y.shape}. Expected one dimension, with one label per row.")
    if y.dtype.kind == "S":
        y = np.char.decode(y, "utf-8")
    for row in _missing(y)[:1]:
        raise UserError(f"{name}: row {row} has no label. Label every row, or pass no labels.")
    if y.dtype.kind == "f" and (wild := np.flatnonzero(~(np.abs(y) < 2**53))).size:
        raise UserError(f"{name}: the label of row {wild[0]} is {y[wild[0]]:g}. Expected whole numbers or names.")
    if y.dtype.kind == "f" and (y == np.round(y)).all():
        y = y.astype(np.int64)
    if classes is not None:
        names = tuple(c.decode() if isinstance(c, bytes) else str(c) for c in np.asarray(classes).tolist())
        if len(set(names)) < len(names):
            raise UserError(f"{name}: classes contains duplicate names: {', '.join(names)}. Expected each name once.")
        if y.dtype.kind not in "iu" or (len(y) and (y.min() < 0 or y.max() >= len(names))):
            raise UserError(
                f"{name}: y must contain whole numbers from 0 to {len(names) - 1}, because classes has {len(names)}"
                " names."
            )
        return torch.from_numpy(y.astype(np.int64)), names
    if y.dtype.kind == "f":
        raise UserError(f"{name}: labels are fractions such as {y[0]:g}. Expected whole numbers or names.")
    try:
        found, index = np.unique(y, return_inverse=True)
    except TypeError as error:
        raise UserError(f"{name}: labels mix numbers and names. Expected only numbers or only names.") from error
    return torch.from_numpy(index.reshape(-1).astype(np.int64)), tuple(str(c) for c in found.tolist())


def _missing(y: np.ndarray) -> list[int]:
    """The rows without a label: None, NaN, or the missing value of pandas."""
    if y.dtype.kind == "O":
        return [
            row for row, label in enumerate(y) if str(label) in ("None", "nan", "<NA>") and not isinstance(label, str)
        ]
    return [*np.flatnonzero(np.isnan(y))] if y.dtype.kind == "f" else []
