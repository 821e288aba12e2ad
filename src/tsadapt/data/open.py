"""From what a user wrote to a dataset."""

import os
from pathlib import Path

from tsadapt.data.arrays import ARRAYS, TABLES, load_array, load_table
from tsadapt.data.benchmarks import BENCHMARKS, benchmark_names, load_benchmark
from tsadapt.data.digits import DIGITS, EMBEDDED, load_digits_set
from tsadapt.data.folders import load_folder
from tsadapt.data.lists import LISTS, load_list
from tsadapt.data.synthetic import MOONS, load_moons
from tsadapt.data.types import Dataset, Domain
from tsadapt.errors import UserError, unknown

__all__ = ["data_root", "dataset_names", "open_dataset"]


KINDS = f"a folder of images, a list file {'/'.join(LISTS)}, or {', '.join(ARRAYS + TABLES)}"
"""What a file or folder may be, for messages."""


def open_dataset(name: str, columns: tuple[str, ...] | None = None) -> Dataset:
    """The dataset that `name` stands for: a folder, list, array or table, or a name such as office31:amazon.

    `columns` are the features that a table must have, by name.
    """
    family, colon, member = name.partition(":")
    path = Path(name).expanduser()
    if path.is_dir():
        return _whole(load_folder(path, name))
    if colon and family == "digits":
        return load_digits_set(member, None if member in EMBEDDED else data_root())
    if colon and family == "features":
        return load_array(_features(member, data_root()))
    if colon and family == "moons":
        return _whole(load_moons(member))
    if colon and family in BENCHMARKS:
        return _whole(load_benchmark(family, member, data_root()))
    suffix = path.suffix.lower()
    if suffix in (*ARRAYS, *TABLES, *LISTS):
        if not path.is_file():
            raise UserError(f"No file at {name}: expected {KINDS}.")
        if suffix in LISTS:
            return _whole(load_list(path, name))
        return load_array(path) if suffix in ARRAYS else load_table(path, columns)
    if path.exists():
        raise UserError(f"{name} is no data that tsadapt reads: expected {KINDS}.")
    if "/" in name or not colon:
        raise UserError(f"Nothing at {name}: expected {KINDS}, or a name such as {', '.join(dataset_names()[:2])}.")
    raise UserError(f"{unknown('data', name, dataset_names())} Or name {KINDS}.")


def _features(name: str, root: Path | None) -> Path:
    """Embeddings kept in the data folder, as features/NAME.npz."""
    path = None if root is None else root / "features" / f"{name}.npz"
    if path is None or not path.is_file():
        place = "TSADAPT_DATA is not set" if path is None else f"nothing at {path}"
        raise UserError(
            f"features:{name} is not here ({place}). Make it with: tsadapt features DATA --out features/{name}.npz, and"
            " name the folder above features/ with the environment variable TSADAPT_DATA."
        )
    return path


def _whole(domain: Domain) -> Dataset:
    """The same rows to train and to evaluate on."""
    return Dataset(domain, domain)


def dataset_names() -> list[str]:
    """Every name `open_dataset` knows beside files."""
    return [*(f"digits:{name}" for name in DIGITS), *benchmark_names(), *MOONS, *_feature_names()]


def _feature_names() -> list[str]:
    root = data_root()
    return [] if root is None else [f"features:{path.stem}" for path in sorted((root / "features").glob("*.npz"))]


def data_root() -> Path | None:
    """The folder that holds a user's datasets, named by the environment variable TSADAPT_DATA."""
    value = os.environ.get("TSADAPT_DATA")
    if not value:
        return None
    root = Path(value).expanduser()
    if not root.is_dir():
        raise UserError(f"TSADAPT_DATA is {value}, which is not a folder: name the one that holds your datasets.")
    return root
