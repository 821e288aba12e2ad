"""From what a user wrote to a dataset."""

import os
from pathlib import Path

from tsadapt.data.arrays import ARRAYS, TABLES, load_array, load_table
from tsadapt.data.digits import DIGITS, load_digits_set
from tsadapt.data.types import Dataset
from tsadapt.errors import UserError, unknown

__all__ = ["data_root", "dataset_names", "open_dataset"]


def open_dataset(name: str, columns: tuple[str, ...] | None = None) -> Dataset:
    """The dataset that `name` stands for: a file of arrays, a table, or a name such as digits:mnist.

    `columns` are the features that a table must have, by name.
    """
    family, colon, member = name.partition(":")
    path = Path(name).expanduser()
    if colon and family == "digits":
        return load_digits_set(member, data_root())
    if path.suffix in ARRAYS + TABLES:
        if not path.is_file():
            raise UserError(f"No file at {name}: expected {' or '.join(ARRAYS + TABLES)}.")
        return load_array(path) if path.suffix in ARRAYS else load_table(path, columns)
    if path.exists():
        raise UserError(f"{name} is no data that tsadapt reads: expected a file {', '.join(ARRAYS + TABLES)}.")
    raise UserError(f"{unknown('data', name, dataset_names())} Or name a file: {', '.join(ARRAYS + TABLES)}.")


def dataset_names() -> list[str]:
    """Every name `open_dataset` knows beside files."""
    return [f"digits:{name}" for name in DIGITS]


def data_root() -> Path | None:
    """The folder that holds a user's datasets, named by the environment variable TSADAPT_DATA."""
    value = os.environ.get("TSADAPT_DATA")
    if not value:
        return None
    root = Path(value).expanduser()
    if not root.is_dir():
        raise UserError(f"TSADAPT_DATA is {value}, which is not a folder.")
    return root
