"""From a name or path to a dataset: one table of named families, one of formats.

To add a family or a format, add an entry to its table.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tsadapt.data.arrays import ARRAYS, TABLES, load_array, load_table
from tsadapt.data.benchmarks import BENCHMARKS, load_benchmark
from tsadapt.data.digits import DIGITS, EMBEDDED, load_digits_set
from tsadapt.data.folders import load_folder
from tsadapt.data.images import SUFFIXES
from tsadapt.data.lists import LISTS, load_list, load_paths
from tsadapt.data.paths import absolute_path, display_path
from tsadapt.data.reading import oddity
from tsadapt.data.synthetic import MOONS, load_moons
from tsadapt.data.types import Dataset, Domain
from tsadapt.errors import UserError, few, unknown

__all__ = ["KINDS", "canonical_name", "data_root", "dataset_names", "open_dataset"]

Columns = tuple[str, ...] | None


def open_dataset(name: str | Path, columns: Columns = None) -> Dataset:
    """The dataset with this name (office31:amazon) or path (a folder, list file, image, array or table).

    `columns` names the features that a table must contain. A relative and an absolute path to the same data give the
    same dataset.

    >>> dataset = open_dataset("digits:uci")
    >>> dataset.name, len(dataset.train)
    ('digits:uci', 1797)
    """
    full = canonical_name(name)
    family, _, member = full.partition(":")
    if family in FAMILIES:
        dataset = FAMILIES[family].load(member)
    else:
        shown = display_path(name)
        dataset = _format_of(Path(full), shown).load(Path(full), shown, columns)
    return replace(dataset, name=full)


def canonical_name(name: str | Path) -> str:
    """One spelling for each dataset: FAMILY:MEMBER as given, and everything else as an absolute path.

    A folder takes precedence over a family of the same name.

    >>> canonical_name("digits:uci")
    'digits:uci'
    >>> canonical_name("photos") == canonical_name("photos/../photos/") == str(Path.cwd() / "photos")
    True
    """
    path = absolute_path(name)
    family, colon, _ = str(name).partition(":")
    return str(name) if colon and family in FAMILIES and not path.is_dir() else str(path)


def dataset_names() -> list[str]:
    """Every FAMILY:MEMBER that `open_dataset` accepts."""
    return [f"{name}:{member}" for name, family in FAMILIES.items() for member in family.members()]


def data_root() -> Path | None:
    """The folder that contains the user's datasets: the environment variable TSADAPT_DATA."""
    value = os.environ.get("TSADAPT_DATA")
    if not value:
        return None
    root = Path(os.path.expanduser(value))
    if not root.is_dir():
        raise UserError(f"TSADAPT_DATA is {value}, which is not a folder. Set it to the folder with your datasets.")
    return root


@dataclass(frozen=True)
class Family:
    """Datasets that are known by name: FAMILY:MEMBER."""

    load: Callable[[str], Dataset]
    members: Callable[[], Iterable[str]]


@dataclass(frozen=True)
class Format:
    """Data at a path: what messages call it, its suffixes ("/" is a folder), and its reader.

    The reader takes the path, the name for messages, and the columns that a table must contain.
    """

    title: str
    suffixes: tuple[str, ...]
    load: Callable[[Path, str, Columns], Dataset]


def _whole(domain: Domain) -> Dataset:
    """The same rows for training and evaluation."""
    return Dataset(domain, domain)


def _digits(member: str) -> Dataset:
    return load_digits_set(member, None if member in EMBEDDED else data_root())


def _benchmark(member: str, family: str) -> Dataset:
    return _whole(load_benchmark(family, member, data_root()))


def _features(member: str) -> Dataset:
    """Embeddings in the data folder: features/MEMBER.npz."""
    root = data_root()
    path = None if root is None else root / "features" / f"{member}.npz"
    if path is None or not path.is_file():
        reason = "TSADAPT_DATA is not set" if path is None else f"{path} does not exist"
        raise UserError(
            f"features:{member} was not found: {reason}. Create it with: tsadapt features DATA --out"
            f" features/{member}.npz, and set the environment variable TSADAPT_DATA to the folder that contains"
            " features/."
        )
    return load_array(path, f"features:{member}")


def _feature_names() -> list[str]:
    root = data_root()
    return [] if root is None else [path.stem for path in sorted((root / "features").glob("*.npz"))]


def _in_memory(member: str) -> Dataset:
    raise UserError(
        f"memory:{member} stands for data that a Python program passed in memory, so it cannot be opened by name. Pass"
        " the data again, or save it as an .npz file and use its path."
    )


FAMILIES = {
    "digits": Family(_digits, lambda: DIGITS),
    **{name: Family(partial(_benchmark, family=name), partial(list, b.domains)) for name, b in BENCHMARKS.items()},
    "moons": Family(lambda member: _whole(load_moons(member)), lambda: MOONS),
    "features": Family(_features, _feature_names),
    "memory": Family(_in_memory, tuple),
}

FORMATS = (
    Format("a folder of images", ("/",), lambda path, name, columns: _whole(load_folder(path, name))),
    Format("a list file", LISTS, lambda path, name, columns: _whole(load_list(path, name))),
    Format("an image", SUFFIXES, lambda path, name, columns: _whole(load_paths(name, [path], [path.name]))),
    Format("an array", ARRAYS, lambda path, name, columns: load_array(path, name)),
    Format("a table", TABLES, lambda path, name, columns: load_table(path, columns, name)),
)

KINDS = ", ".join(f.title if "/" in f.suffixes else f"{f.title} ({few(f.suffixes)})" for f in FORMATS)
"""The formats, for messages."""


def _format_of(path: Path, name: str) -> Format:
    """The format of the data at `path`, which is a folder or a regular file: a pipe is never opened."""
    what = oddity(path)
    if what not in (None, "a folder"):
        raise UserError(f"{name} is {what}. Expected one of: {KINDS}.")
    suffix = "/" if path.is_dir() else path.suffix.lower()
    found = next((f for f in FORMATS if suffix in f.suffixes), None)
    if found is not None and path.exists():
        return found
    if path.exists():
        raise UserError(f"tsadapt cannot read {name}: its format is unknown. Expected one of: {KINDS}.")
    if found is None and ":" in name and "/" not in name:
        raise UserError(f"{unknown('dataset', name, dataset_names())} Or pass a path: {KINDS}.")
    names = few(dataset_names(), most=2)
    raise UserError(f"{name} does not exist. Expected one of: {KINDS}; or a dataset name: {names}.")
