"""Arrays and tables from files: .npz, .npy, .csv and .parquet."""

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

__all__ = ["ARRAYS", "TABLES", "from_arrays", "load_array", "load_table"]

ARRAYS = (".npz", ".npy")
TABLES = (".csv", ".parquet")
LABELS = ("label", "class", "target", "y")
"""Names of the column that holds the labels, in any case."""
MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
"""What a number that is not there looks like in a CSV."""


def load_array(path: Path) -> Dataset:
    """A domain from `x` and optional `y`, `classes` and `names` (of the rows) of an .npz, or from a bare .npy.

    Images are recognised by their shape, (N, H, W) or (N, H, W, channels) or (N, channels, H, W), and integers from 0
    to 255 or fractions from 0 to 1; (N, K) are feature vectors. Keys train_x, train_y, test_x, test_y give a split.
    """
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                arrays = {"x": loaded}
            else:
                arrays = {key: loaded[key] for key in loaded.files if not key.endswith("_index")}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} cannot be read as numpy arrays without pickled objects: {error}.") from error
    known = {"classes", *(f"{split}{key}" for split in ("", "train_", "test_") for key in ("x", "y", "names"))}
    for key in arrays:
        if key not in known:
            raise UserError(f"{path}: {unknown('array', key, sorted(known))}")
    classes = arrays.get("classes")
    if {"train_x", "test_x"} <= set(arrays):
        train, test = (
            _named(from_arrays(str(path), arrays[f"{split}_x"], arrays.get(f"{split}_y"), classes, split), names)
            for split, names in ((split, arrays.get(f"{split}_names")) for split in ("train", "test"))
        )
        return Dataset(train, test)
    if "x" not in arrays:
        raise UserError(f"{path} has the arrays {', '.join(arrays) or 'none'}, expected one called x (and maybe y).")
    whole = _named(from_arrays(str(path), arrays["x"], arrays.get("y"), classes), arrays.get("names"))
    return Dataset(whole, whole)


def _named(domain: Domain, names: np.ndarray | None) -> Domain:
    """The domain with names for its rows."""
    if names is None:
        return domain
    if names.shape != (len(domain),):
        raise UserError(f"{domain.name}: names has shape {names.shape}, expected one for each of {len(domain)} rows.")
    return replace(domain, row_names=tuple(map(str, names.tolist())))


def load_table(path: Path, columns: tuple[str, ...] | None = None) -> Dataset:
    """A domain from a table whose columns are numbers, but for a label column called label, class, target or y.

    `columns` are the features wanted, as the source has them: they are found by name, in that order, and no other
    column may be there but a label.
    """
    import pandas

    try:
        frame = _read_csv(path) if path.suffix.lower() == ".csv" else pandas.read_parquet(path)
    except ImportError as error:
        raise UserError(f"{path}: reading Parquet needs an extra: pip install 'tsadapt[tables]'.") from error
    except (ValueError, OSError) as error:
        first_line = str(error).splitlines()[0]
        raise UserError(f"{path} cannot be read as a table: {first_line}.") from error
    frame.columns = [str(c) for c in frame.columns]
    if not len(frame):
        raise UserError(f"{path} has no rows: nothing to learn from or to predict.")
    labels = _pop_labels(path, frame, columns or ())
    if columns is not None:
        missing, extra = [c for c in columns if c not in frame], [c for c in frame if c not in columns]
        if missing or extra:
            raise UserError(
                f"{path} has other columns than the model's: missing {', '.join(missing) or 'none'}; too many"
                f" {', '.join(extra) or 'none'}."
            )
        frame = frame[list(columns)]
    for name, values in frame.items():
        if not pandas.api.types.is_numeric_dtype(values):
            hint = f"; if it holds the labels, call it {LABELS[0]!r}" if labels is None else ""
            raise UserError(f"{path}: column {name!r} is not numeric, for example {values.iloc[0]!r}{hint}.")
    if frame.shape[1] == 0:
        raise UserError(f"{path} has no feature columns.")
    domain = from_arrays(str(path), frame.to_numpy(np.float32), labels)
    whole = replace(domain, columns=tuple(frame.columns))
    return Dataset(whole, whole)


def _read_csv(path: Path) -> Any:
    """The table; an empty label is missing, and one that says NA is a class of that name."""
    import pandas

    header = pandas.read_csv(path, nrows=0).columns
    missing = {c: [""] if str(c).lower() in LABELS else MISSING for c in header}
    return pandas.read_csv(path, keep_default_na=False, na_values=missing)


def _pop_labels(path: Path, frame: Any, features: tuple[str, ...]) -> Any:
    """Take the label column out of a table and give its values; None if there is none, or it is empty."""
    found = [c for c in frame.columns if c.lower() in LABELS and c not in features]
    if len(found) > 1:
        # One of them would be a feature that tells the label.
        raise UserError(f"{path} has {len(found)} columns that could be the labels: {', '.join(found)}. Keep one.")
    if not found:
        return None
    labels = frame.pop(found[0])
    if labels.isna().all():
        return None
    if labels.isna().any():
        row = int(labels.isna().to_numpy().argmax())
        raise UserError(f"{path}: row {row} has no label while others have; fill it in or leave the column out.")
    return labels.to_numpy()


def from_arrays(name: str, x: Any, y: Any = None, classes: Any = None, split: str = "all") -> Domain:
    """A domain from arrays: labels may be numbers or names, and `classes` gives names to numbers."""
    x = np.asarray(x)
    if x.dtype.kind not in "uifb":
        raise UserError(f"{name}: x has dtype {x.dtype}, expected numbers.")
    if x.ndim > 1 and x.size == 0 and len(x):
        raise UserError(f"{name}: x has shape {x.shape}: rows without any value.")
    if x.ndim == 2:
        rows = torch.from_numpy(x.astype(np.float32))
    elif x.ndim in (3, 4):
        rows = _images(name, x)
    else:
        raise UserError(f"{name}: x has shape {x.shape}, expected (rows, features) or images (rows, height, width).")
    if y is None:
        return Domain(name, rows, split=split)
    labels, names = _labels(name, np.asarray(y), classes)
    return Domain(name, rows, labels, names, split)


def _images(name: str, x: np.ndarray) -> Tensor:
    """Images as uint8 (N, channels, H, W)."""
    if x.ndim == 3:
        x = x[:, None]
    elif x.shape[-1] in (1, 3) and x.shape[1] not in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    if x.shape[1] not in (1, 3):
        raise UserError(f"{name}: images have shape {x.shape[1:]}, expected one or three channels.")
    low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 0.0)
    if not np.isfinite([low, high]).all():
        raise UserError(f"{name}: some pixels are not finite numbers.")
    if low < 0 or high > 255:
        raise UserError(f"{name}: pixels go from {low:g} to {high:g}, expected 0 to 255, or fractions from 0 to 1.")
    if high <= 1:
        x = (x.astype(np.float32) * 255).round()
    return torch.from_numpy(np.ascontiguousarray(x).astype(np.uint8))


def _labels(name: str, y: np.ndarray, classes: Any) -> tuple[Tensor, tuple[str, ...]]:
    """Labels as indices, and the class names."""
    if y.ndim != 1:
        raise UserError(f"{name}: y has shape {y.shape}, expected one label for each row.")
    if y.dtype.kind == "S":
        y = np.char.decode(y, "utf-8")
    if y.dtype.kind == "f" and (y == np.round(y)).all():
        y = y.astype(np.int64)
    if classes is not None:
        names = tuple(c.decode() if isinstance(c, bytes) else str(c) for c in np.asarray(classes).tolist())
        if len(set(names)) < len(names):
            raise UserError(f"{name}: classes has a name twice: {', '.join(names)}.")
        if y.dtype.kind not in "iu" or (len(y) and (y.min() < 0 or y.max() >= len(names))):
            raise UserError(
                f"{name}: y must be whole numbers from 0 to {len(names) - 1}: classes has {len(names)} names."
            )
        return torch.from_numpy(y.astype(np.int64)), names
    if y.dtype.kind == "f":
        raise UserError(f"{name}: labels are fractions such as {y[0]:g}, expected whole numbers or names.")
    found, index = np.unique(y, return_inverse=True)
    return torch.from_numpy(index.reshape(-1).astype(np.int64)), tuple(str(c) for c in found.tolist())
