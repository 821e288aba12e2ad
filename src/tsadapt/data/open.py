"""From a name or path to a dataset: one table of named families, one of formats.

To add a family or a format, add an entry to its table.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tsadapt.data.arrays import ARRAYS, load_array
from tsadapt.data.benchmarks import BENCHMARKS, load_benchmark
from tsadapt.data.digits import DIGITS, EMBEDDED, load_digits_set
from tsadapt.data.folders import is_image, load_files, load_folder
from tsadapt.data.hugging_face import HUGGING_FACE, is_saved, load_saved
from tsadapt.data.images import SUFFIXES
from tsadapt.data.lists import LISTS, load_list, load_paths
from tsadapt.data.paths import absolute_path, display_path
from tsadapt.data.patterns import STANDARD_INPUT, is_kept_list, is_pattern, kept_list, load_standard_input, matching
from tsadapt.data.reading import oddity
from tsadapt.data.shards import SHARDS, load_shards
from tsadapt.data.synthetic import MOONS, load_moons
from tsadapt.data.tables import NO_ROLES, TABLES, load_table, load_tables
from tsadapt.data.types import Dataset, Domain, Roles
from tsadapt.errors import UserError, counted, few, unknown

__all__ = ["KINDS", "canonical_name", "data_root", "dataset_names", "open_dataset"]

Columns = tuple[str, ...] | None


def open_dataset(name: str | Path, columns: Columns = None, roles: Roles = NO_ROLES) -> Dataset:
    """The dataset with this name (office31:amazon) or path (a folder, list file, image, array, table or archive).

    A name can also be a pattern ("photos/*.jpg"), hf:PATH, or - for paths on standard input. `columns` names the
    features that a table must contain, and `roles` its columns that are none. A relative and an absolute path to the
    same data give the same dataset.

    >>> dataset = open_dataset("digits:uci")
    >>> dataset.name, len(dataset.train)
    ('digits:uci', 1797)
    """
    if str(name) == STANDARD_INPUT:
        return _whole(load_standard_input())
    full = canonical_name(name)
    family, _, member = full.partition(":")
    if family == HUGGING_FACE:
        dataset = load_saved(Path(member), _shown_saved(name), columns, roles)
    elif family in FAMILIES:
        dataset = FAMILIES[family].load(member)
    elif is_pattern(full) and not Path(full).exists():
        dataset = _matching(full, display_path(name), columns, roles)
    else:
        shown = "standard input" if is_kept_list(Path(full)) else display_path(name)
        dataset = _format_of(Path(full), shown).load(Path(full), shown, columns, roles)
    return replace(dataset, name=full)


def canonical_name(name: str | Path) -> str:
    """One spelling for each dataset: FAMILY:MEMBER as given, and everything else as an absolute path.

    A folder takes precedence over a family of the same name. Paths on standard input become a list file.

    >>> canonical_name("digits:uci")
    'digits:uci'
    >>> canonical_name("photos") == canonical_name("photos/../photos/") == str(Path.cwd() / "photos")
    True
    """
    if str(name) == STANDARD_INPUT:
        return kept_list()
    path = absolute_path(name)
    family, colon, member = str(name).partition(":")
    if not colon or path.is_dir():
        return str(path)
    if family == HUGGING_FACE and member:
        return f"{HUGGING_FACE}:{absolute_path(member)}"
    return str(name) if family in FAMILIES else str(path)


def _shown_saved(name: str | Path) -> str:
    return f"{HUGGING_FACE}:{display_path(str(name).partition(':')[2])}"


def _matching(pattern: str, name: str, columns: Columns, roles: Roles) -> Dataset:
    """What a pattern matches: one dataset, images below the folder before its first wildcard, tables, or shards."""
    root, inside = matching(pattern)
    if not inside:
        raise UserError(f"{name} matches nothing in {display_path(root)}. Expected files, such as {root.name}/*.jpg.")
    paths = [root / path for path in inside]
    if any(is_image(path) for path in inside):
        return _whole(load_files(root, inside, name))
    if len(paths) == 1:
        return _format_of(paths[0], name).load(paths[0], name, columns, roles)
    if all(path.suffix.lower() in TABLES and path.is_file() for path in paths):
        return load_tables(paths, columns, name, roles)
    if all(path.suffix.lower() in SHARDS and path.is_file() for path in paths):
        return _whole(load_shards(paths, name, roles))
    folders = sum(path.is_dir() for path in paths)
    hint = f" To read what is in the folders: {name}/*" if folders == len(paths) else ""
    listed = f"{counted(len(paths), 'path')} ({few(inside, 3)})"
    raise UserError(f"{name} matches {listed}. Expected images, tables or tar archives.{hint}")


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

    The reader takes the path, the name for messages, the columns that a table must contain, and those that are none.
    """

    title: str
    suffixes: tuple[str, ...]
    load: Callable[[Path, str, Columns, Roles], Dataset]


def _whole(domain: Domain) -> Dataset:
    """The same rows for training and evaluation."""
    return Dataset(domain, domain)


def _folder(path: Path, name: str) -> Dataset:
    if is_saved(path):
        raise UserError(f"{name} holds a dataset of Hugging Face. To read it: {HUGGING_FACE}:{name}")
    return _whole(load_folder(path, name))


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
    Format("a folder of images", ("/",), lambda path, name, columns, roles: _folder(path, name)),
    Format("a list file", LISTS, lambda path, name, columns, roles: _whole(load_list(path, name))),
    Format("an image", SUFFIXES, lambda path, name, columns, roles: _whole(load_paths(name, [path], [path.name]))),
    Format("an array", ARRAYS, lambda path, name, columns, roles: load_array(path, name)),
    Format("a table", TABLES, lambda path, name, columns, roles: load_table(path, columns, name, roles)),
    Format("an archive", SHARDS, lambda path, name, columns, roles: _whole(load_shards([path], name, roles))),
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
