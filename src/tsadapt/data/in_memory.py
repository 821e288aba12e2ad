"""Data that a Python program has in memory, as a dataset."""

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tsadapt.data.arrays import from_arrays, label_indices
from tsadapt.data.images import MOST_PIXELS, pixels
from tsadapt.data.lists import load_paths
from tsadapt.data.open import open_dataset
from tsadapt.data.paths import absolute_path
from tsadapt.data.reading import reading
from tsadapt.data.tables import NO_ROLES, from_frame
from tsadapt.data.types import Dataset, Domain, Roles
from tsadapt.errors import UserError

__all__ = ["as_dataset", "dataset_name"]

EXPECTED = (
    "a path or dataset name, a NumPy array or torch tensor (vectors or images), a pandas DataFrame, a PIL image, a list"
    " of image paths, or a tuple (X, y) of one of these and its labels"
)


def as_dataset(
    data: Any,
    columns: tuple[str, ...] | None = None,
    labels: Any = None,
    name: str = "the data",
    roles: Roles = NO_ROLES,
) -> Dataset:
    """A dataset from a path or name, an array, tensor, DataFrame, image, list of image paths, or a tuple (X, y).

    Arrays and tables follow the rules of .npz and .csv files: `load_array`, `from_frame`. `columns` names the features
    that a table must contain, and `roles` the columns that are none. `labels` are numbers or class names, one per row,
    for data that has none. `name` is what messages call data in memory. A `Dataset` or `Domain` is used as it is.

    >>> dataset = as_dataset((np.eye(3), ["cat", "dog", "cat"]), name="the source")
    >>> dataset.train.classes, dataset.train.y.tolist(), dataset.train.name
    (('cat', 'dog'), [0, 1, 0], 'the source')
    """
    if isinstance(data, tuple) and len(data) == 2 and not _are_paths(data):
        x, y = data
        if y is not None and labels is not None:
            raise _labelled_twice(name)
        return as_dataset(x, columns, labels if y is None else y, name, roles)
    dataset = _as_given(data, columns, name, roles)
    return dataset if labels is None else _with_labels(dataset, labels)


def dataset_name(dataset: Dataset, with_labels: bool = True) -> str:
    """The name of a dataset for configs: its path or name, or memory:HASH for data in memory.

    The hash depends on rows and columns, and on labels unless they only evaluate (a target's).

    >>> dataset_name(as_dataset("digits:uci")), dataset_name(as_dataset(np.eye(3)))
    ('digits:uci', 'memory:65106f9bd717fa0e')
    """
    if dataset.name is not None:
        return dataset.name
    domains = (dataset.train, dataset.test)
    parts = [(d.fingerprint(), d.label_fingerprint() if with_labels else None, d.columns) for d in domains]
    return f"memory:{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def _as_given(data: Any, columns: tuple[str, ...] | None, name: str, roles: Roles) -> Dataset:
    """The dataset with the labels that the data itself contains."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | Path):
        return open_dataset(data, columns, roles)
    domain = _domain(data, columns, name, roles)
    return Dataset(domain, domain)


def _domain(data: Any, columns: tuple[str, ...] | None, name: str, roles: Roles) -> Domain:
    pandas = sys.modules.get("pandas")  # a DataFrame exists only if pandas has been imported
    if isinstance(data, Domain):
        return data
    if isinstance(data, np.ndarray | Tensor):
        return from_arrays(name, _array(data, name))
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return from_frame(name, data, columns, roles)
    if isinstance(data, Image.Image):
        return Domain(name, _pixels(data, name)[None])
    if isinstance(data, list | tuple) and _are_paths(data):
        return load_paths(name, [absolute_path(path) for path in data], [str(path) for path in data])
    kind = type(data)
    parts = f" of {type(data[0]).__name__}" if isinstance(data, list | tuple) else ""
    raise UserError(f"{name} is of type {kind.__module__}.{kind.__qualname__}{parts}. Expected {EXPECTED}.")


def _pixels(image: Image.Image, name: str) -> Tensor:
    with reading(name, f"a complete image of at most {MOST_PIXELS // 1_000_000} megapixels"):
        return pixels(image)  # Pillow decodes an opened file on first use


def _are_paths(data: Sequence[Any]) -> bool:
    return all(isinstance(one, str | Path) for one in data)


def _array(data: Any, name: str) -> np.ndarray:
    """A NumPy array from a tensor or anything that NumPy converts."""
    with reading(name, "an array or a dense tensor"):
        if isinstance(data, Tensor):
            data = data.detach().cpu()
            data = data.float() if data.dtype == torch.bfloat16 else data  # NumPy has no bfloat16
        return np.asarray(data)


def _with_labels(dataset: Dataset, labels: Any) -> Dataset:
    """The dataset with labels, and without its name: the name stands for the unlabelled data."""
    domain = dataset.train
    if domain.y is not None:
        raise _labelled_twice(domain.name)
    if dataset.test is not domain:
        raise UserError(f"{domain.name} has a training and a test split. Expected data without a split to label.")
    y, classes = label_indices(domain.name, _array(labels, f"The array of labels for {domain.name}"))
    domain = replace(domain, y=y, classes=classes)
    return Dataset(domain, domain)


def _labelled_twice(name: str) -> UserError:
    return UserError(f"{name} already contains labels, and labels were passed as well. Pass only one of them.")
