"""Tables: .csv, .tsv and .parquet files, and pandas DataFrames. Rows are feature vectors, or images by their files."""

import csv
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tsadapt.data.arrays import from_arrays
from tsadapt.data.images import SUFFIXES
from tsadapt.data.lists import load_paths
from tsadapt.data.paths import valid_text
from tsadapt.data.reading import reading
from tsadapt.data.types import Dataset, Domain, Roles
from tsadapt.errors import UserError, few

__all__ = ["LABELS", "NO_ROLES", "TABLES", "from_frame", "load_table", "load_tables"]

TABLES = (".csv", ".tsv", ".parquet")
LABELS = ("label", "class", "target", "y")
"""Names of the label column, in upper or lower case."""
MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
"""Spellings of a missing number in a CSV file."""
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
INDEX = ("", "Unnamed: 0")
"""What the first column is called that pandas writes for an index without a name."""
LONGEST_NAME = 40
"""Characters of a column's name that messages show."""
COMMA = re.compile(r"[-+]?(\d+|\d*,\d+)([eE][-+]?\d+)?")
"""A number with a decimal comma."""
IDENTIFIES = re.compile(r"(^|.*[_\W])(id|key|index|nr|no)", re.IGNORECASE)
"""Names of columns that usually identify the rows."""
NO_ROLES = Roles()


def load_table(
    path: Path, columns: tuple[str, ...] | None = None, name: str | None = None, roles: Roles = NO_ROLES
) -> Dataset:
    """A dataset from a CSV or Parquet file; see `from_frame`."""
    return load_tables([path], columns, name or str(path), roles)


def load_tables(paths: Sequence[Path], columns: tuple[str, ...] | None, name: str, roles: Roles = NO_ROLES) -> Dataset:
    """A dataset from the rows of one or several tables with the same columns."""
    import pandas

    frames, recognised = list[Any](), dict[str, None]()
    for path in paths:
        shown = name if len(paths) == 1 else path.name
        frame, said = _read(path, shown, columns or (), roles)
        if frames and [*frame.columns] != [*frames[0].columns]:
            raise UserError(f"{name}: {paths[0].name} and {shown} do not have the same columns. Expected the same.")
        frames.append(frame)
        recognised |= dict.fromkeys(said)
    whole = frames[0] if len(frames) == 1 else pandas.concat(frames, ignore_index=True)
    domain = from_frame(name, whole, columns, roles, paths[0].parent)
    domain = replace(domain, recognised=(*recognised, *domain.recognised))
    return Dataset(domain, domain)


def _read(path: Path, name: str, features: tuple[str, ...], roles: Roles) -> tuple[Any, list[str]]:
    """The table in a file, and what was recognised in its form."""
    import pandas

    with reading(name, "a CSV or Parquet file"):
        if path.suffix.lower() != ".parquet":
            return _read_csv(path, name, features, roles)
        try:
            return pandas.read_parquet(path), []
        except ImportError as error:
            raise UserError(f"{name}: Parquet files need an extra package: pip install 'tsadapt[tables]'.") from error


def _read_csv(path: Path, name: str, features: tuple[str, ...], roles: Roles) -> tuple[Any, list[str]]:
    """The table, and what was recognised. An empty label is missing; the label NA is a class of that name."""
    import pandas

    separator = _separator(path)
    header = _csv_header(path, separator)
    labels = {c for c in header if c == roles.label or (roles.label is None and c.lower() in LABELS)}
    index = {c for c in header[:1] if c in INDEX and c not in features and roles.id is None}
    names = index | {c for c in header if c == roles.id}
    missing = {c: [""] if c in labels | names else MISSING for c in header}

    def read(decimal: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)  # rows longer than the header
            # Each column is read as a whole: in parts, labels would be numbers in one and text in the next. Names stay
            # as they are written: 007 is not 7.
            return pandas.read_csv(
                path, sep=separator, decimal=decimal, keep_default_na=False, na_values=missing, index_col=False,
                low_memory=False, header=0, names=header, dtype=dict.fromkeys(names, str),
            )  # fmt: skip

    frame, said = read("."), list[str]()
    if separator != ("\t" if path.suffix.lower() == ".tsv" else ","):
        said.append(f"{name}: its columns are separated by {SEPARATORS[separator]}.")
    if separator != "," and any(_has_commas(frame[c]) for c in header if c not in labels | names):
        frame = read(",")
        said.append(f"{name}: its numbers have decimal commas.")
    return frame, said


def _has_commas(values: Any) -> bool:
    """Whether a column that was read as text has numbers with decimal commas, and nothing else."""
    from pandas.api.types import is_numeric_dtype

    if is_numeric_dtype(values):
        return False
    texts = [str(value).strip() for value in values.dropna()]
    return any("," in text for text in texts) and all(COMMA.fullmatch(text) for text in texts)


def _separator(path: Path) -> str:
    """What separates the columns: the first that gives header and first row the same number of columns, two or more."""
    order = sorted(SEPARATORS, key=lambda s: s != "\t") if path.suffix.lower() == ".tsv" else [*SEPARATORS]
    for separator in order:
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                widths = [len(row) for row in islice(filter(None, csv.reader(file, delimiter=separator)), 2)]
        except csv.Error:  # a field that is too long, because it is the whole row
            continue
        if widths and widths[0] > 1 and widths[-1] == widths[0]:
            return separator
    return order[0]


def _csv_header(path: Path, separator: str) -> list[str]:
    """The names of a CSV file's columns, each once. (pandas takes minutes to number 200,000 equal names.)"""
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next((row for row in csv.reader(file, delimiter=separator) if row), [])
    names = [name or f"Unnamed: {i}" for i, name in enumerate(header)]
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        raise UserError(f"{path.name} has more than one column named {twice[0]!r}. Give each column its own name.")
    return names


def from_frame(
    name: str, frame: Any, columns: tuple[str, ...] | None = None, roles: Roles = NO_ROLES, folder: Path = Path()
) -> Domain:
    """A domain from a pandas table: its numbers are features, or one of its columns has the paths of images.

    A column named label, class, target or y has the classes, where `roles` name no other, and an index, also one that
    pandas wrote as a first column without a name, has the names of the rows. `columns` are the expected features, by
    name: they are put into that order, and a missing or additional one is an error. Paths are relative to `folder`.
    """
    frame = frame.copy(deep=False)
    frame.columns = [str(c) for c in frame.columns]
    if not len(frame):
        raise UserError(f"{name} has no rows. Expected at least one.")
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise UserError(f"{name} has more than one column named {_short(twice[0])}. Give each column its own name.")
    if roles.id is not None and roles.id == roles.label:
        raise UserError(
            f"The column {roles.id!r} is given as both --id-column and --label-column. Expected two columns."
        )
    first = frame.columns[0] if frame.shape[1] else None
    labels = _pop_labels(name, frame, columns or (), roles)
    ids, id_column, recognised = _pop_names(name, frame, first, columns or (), roles)
    if columns is None and (files := _image_column(frame, ids, id_column)) is not None:
        return replace(_images(name, frame, files, ids, labels, folder), id_column=id_column)
    if columns is not None:
        frame = _expected(name, frame, columns)
    _check_numbers(name, frame, labels is None)
    if columns is None:
        recognised += _like_names(name, frame)
    domain = from_arrays(name, frame.to_numpy(np.float64, na_value=np.nan), labels)  # nullable columns have NA
    return replace(
        domain, columns=tuple(frame.columns), row_names=ids, id_column=id_column, recognised=tuple(recognised)
    )


def _pop_labels(name: str, frame: Any, features: tuple[str, ...], roles: Roles) -> Any:
    """Remove the label column from a table and return its values; None if there is none or it is empty."""
    found = [c for c in [roles.find("label", frame.columns, name)] if c is not None]
    if roles.label is None:
        found = [c for c in frame.columns if c.lower() in LABELS and c not in features and c != roles.id]
    if len(found) > 1:
        # All but one would be features that reveal the label.
        raise UserError(
            f"{name} has {len(found)} possible label columns: {', '.join(found)}. Keep only one, or name it:"
            f" --label-column {found[0]}."
        )
    if not found:
        return None
    labels = frame.pop(found[0])
    if labels.isna().all():
        return None
    if labels.isna().any():
        row = int(labels.isna().to_numpy().argmax())
        raise UserError(f"{name}: row {row} has no label but other rows do. Label every row, or remove the column.")
    return labels.to_numpy()


def _pop_names(
    name: str, frame: Any, first: str | None, features: tuple[str, ...], roles: Roles
) -> tuple[tuple[str, ...] | None, str | None, list[str]]:
    """Remove the column that names the rows and return its values, its name, and what was recognised."""
    import pandas

    index, said = frame.index, list[str]()
    if roles.id is not None and index.name == roles.id and roles.id not in frame:
        return _texts(index), roles.id, said
    column = roles.find("id", frame.columns, name)
    if column is None and roles.id is None and first in INDEX and first in frame and first not in features:
        said = [
            f"{name}: its first column has no name. It is taken for an index: it names the rows, and is no feature."
        ]
        return _texts(frame.pop(first)), None, said
    if column is not None:
        values = frame.pop(column)
        if values.isna().any():
            row = int(values.isna().to_numpy().argmax())
            raise UserError(f"{name}: row {row} has nothing in its column {column!r} (--id-column). Expected a name.")
        return _texts(values), column, said
    return (None if isinstance(index, pandas.RangeIndex) else _texts(index)), None, said


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(valid_text(str(value)) for value in values)


def _image_column(frame: Any, ids: tuple[str, ...] | None, id_column: str | None) -> Any:
    """The paths of image files in a table, which has one column of such; None if it has none."""
    from pandas.api.types import is_numeric_dtype

    def of_images(values: Any) -> bool:
        return all(isinstance(value, str) and value.lower().endswith(SUFFIXES) for value in values)

    found = [c for c in frame.columns if not is_numeric_dtype(frame[c]) and of_images(frame[c])]
    if len(found) > 1:
        raise UserError(f"The columns {few(map(_short, found))} all have image files. Expected one of them.")
    if found:
        return frame.pop(found[0]).tolist()
    return [*ids] if ids is not None and id_column is not None and of_images(ids) else None


def _images(name: str, frame: Any, files: list[str], ids: tuple[str, ...] | None, labels: Any, folder: Path) -> Domain:
    """A domain of image files that a table lists."""
    texts = None if labels is None else [_label_text(label) for label in labels.tolist()]
    domain = load_paths(name, [folder / file for file in files], files, texts, ids)
    said = () if not frame.shape[1] else (f"{name}: its rows are images; other columns are ignored: {_few(frame)}.",)
    return replace(domain, recognised=said)


def _label_text(label: Any) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def _expected(name: str, frame: Any, columns: tuple[str, ...]) -> Any:
    """The table with these columns, in this order."""
    known = {*frame.columns}
    missing, extra = [c for c in columns if c not in known], [c for c in frame if c not in {*columns}]
    if not missing and not extra:
        return frame[list(columns)]
    hint = ""
    if len(extra) == 1 and not missing:
        hint = f" If {_short(extra[0])} names the rows: --id-column {extra[0]}; if it holds labels: --label-column."
    raise UserError(
        f"{name} does not have the model's {len(columns):,} columns. Missing: {_few(missing) or 'none'}. Unexpected:"
        f" {_few(extra) or 'none'}.{hint}"
    )


def _check_numbers(name: str, frame: Any, unlabelled: bool) -> None:
    """Refuse a column that is not numeric, and a table without columns."""
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    for column, values in frame.items():
        if not is_numeric_dtype(values) or is_complex_dtype(values):
            example = next(filter(_no_number, values), values.iloc[0])
            shown = "a number too large for any array" if isinstance(example, int) else _short(example)
            hint = f" If it names the rows: --id-column {column}."
            if unlabelled:
                hint += f" If it contains the labels: --label-column {column}, or rename it to {LABELS[0]!r}."
            raise UserError(
                f"{name}: column {_short(column)} is not numeric, for example {shown}. Expected numbers.{hint}"
            )
    if frame.shape[1] == 0:
        raise UserError(f"{name} has no feature columns. Expected at least one column of numbers besides the labels.")


def _like_names(name: str, frame: Any) -> list[str]:
    """A remark on columns that seem to identify the rows, and are features all the same."""
    from pandas.api.types import is_integer_dtype

    found = [
        c for c in frame if IDENTIFIES.fullmatch(c) and is_integer_dtype(frame[c]) and frame[c].is_unique
    ] if len(frame) > 1 else []  # fmt: skip
    return [
        f"{name}: column {_short(c)} has another whole number in each row, and is taken for a feature. If it only names"
        f" the rows: --id-column {c}."
        for c in found
    ]


def _short(value: Any) -> str:
    """A name or value for messages; a long one is cut."""
    text = repr(value)
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}…{text[0]}"


def _few(names: Any) -> str:
    shown = [name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…" for name in map(str, names)]
    return few(shown)


def _no_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return True
    return False
