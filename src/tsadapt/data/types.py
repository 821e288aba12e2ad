"""The types of data: domains, datasets and batches. A batch has no field for labels of its target rows.

Shapes: N rows; images (N, channels, height, width) as uint8, feature vectors (N, K) as float32 (float64 where that
would lose digits), or image files.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

import numpy as np

from tsadapt.data.images import Images
from tsadapt.data.stored import StoredRows
from tsadapt.errors import UserError, few

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Batch", "Dataset", "Domain", "Roles", "Unreadable", "match_labels"]

Kind = Literal["image", "vector", "file", "stored"]

Unreadable = dict[int, str]
"""Images that could not be decoded: row number → reason."""


@dataclass(frozen=True)
class Roles:
    """Columns of a table that are no features, by name: `id` names the rows, `label` holds the classes.

    `needed` are those of the two that the data must have.
    """

    id: str | None = None
    label: str | None = None
    needed: tuple[Literal["id", "label"], ...] = ("id", "label")

    def find(self, role: Literal["id", "label"], columns: Iterable[str], name: str) -> str | None:
        """The column with this role; None if there is none, or if the user named none."""
        column = self.id if role == "id" else self.label
        columns = list(columns)
        if column is None or column in columns:
            return column
        if role in self.needed:
            near = get_close_matches(column, columns, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UserError(f"{name} has no column {column!r} (--{role}-column).{hint} Its columns: {few(columns)}.")
        return None


@dataclass(frozen=True)
class Domain:
    """Rows in memory, images that are read on demand, or their activations on the disk.

    Labels, if known, are indices into `classes`. `name` is for messages. `row_names` identify the rows in predictions:
    paths for images; None means row numbers. `columns` are the names of a table's features. `notes` are remarks on the
    data for the user, and `recognised` what its form was taken for, where nothing is wrong. `origin` is the fingerprint
    of the data that the rows were computed from. `id_column` is the column that the row names come from.
    `weights` say how often training sees each row, relative to the others.
    """

    name: str
    x: "Tensor | Images | StoredRows"
    y: "Tensor | None" = None
    classes: tuple[str, ...] | None = None
    split: str = "all"
    row_names: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    origin: str | None = None
    recognised: tuple[str, ...] = ()
    id_column: str | None = None
    weights: "Tensor | None" = None

    def __post_init__(self) -> None:
        if len(self.x) == 0:
            split = "" if self.split == "all" else f" ({self.split} split)"
            raise UserError(f"{self.name}{split} has no rows. Expected at least one.")
        if self.y is not None:
            if self.classes is None or len(self.y) != len(self.x):
                raise UserError(
                    f"{self.name} has {len(self.x)} rows but {len(self.y)} labels. Expected one label per row."
                )
            if int(self.y.min()) < -1 or int(self.y.max()) >= len(self.classes):
                low, high, most = int(self.y.min()), int(self.y.max()), len(self.classes) - 1
                raise UserError(f"{self.name} has labels from {low} to {high}. Expected 0 to {most}, or -1 for none.")
        if (bad := self._not_finite()) is not None:
            row, column = bad
            raise UserError(
                f"{self.name} contains a missing or infinite value in row {row}, feature {column}. Fill it in or remove"
                " the row."
            )

    def __len__(self) -> int:
        return len(self.x)

    @property
    def kind(self) -> Kind:
        """Images in memory, feature vectors, images that are read on demand, or activations on the disk."""
        if self._in_memory:
            return "image" if self.tensor.ndim == 4 else "vector"
        return "file" if isinstance(self.x, Images) else "stored"

    @property
    def _in_memory(self) -> bool:
        return not isinstance(self.x, Images | StoredRows)

    def _not_finite(self) -> tuple[int, int] | None:
        """Row and feature of the first value in memory that is missing or infinite."""
        x = np.asarray(self.x) if self._in_memory else np.zeros(0)
        if x.dtype.kind != "f" or (finite := np.isfinite(x)).all():
            return None
        row, column = np.argwhere(~finite.reshape(len(x), -1))[0].tolist()
        return row, column

    @property
    def tensor(self) -> "Tensor":
        """The rows in memory."""
        if isinstance(self.x, Images | StoredRows):
            raise ValueError(f"{self.name} is not in memory")
        return self.x

    def unlabelled(self) -> "Domain":
        """The same rows without labels: the part of a target that training may see."""
        return replace(self, y=None, classes=None)

    def keep(self, rows: list[int]) -> "Domain":
        """A subset of the rows."""
        return replace(
            self,
            x=self.x.keep(rows) if isinstance(self.x, Images | StoredRows) else self.x[rows],
            y=None if self.y is None else self.y[rows],
            row_names=None if self.row_names is None else tuple(self.row_names[row] for row in rows),
            weights=None if self.weights is None else self.weights[rows],
        )

    def row_name(self, row: int) -> str:
        """The name of a row: its path or its number."""
        return self.row_names[row] if self.row_names else str(row)

    def fingerprint(self) -> str:
        """A hash of the rows, without labels and names: it reveals that data has changed."""
        if self.origin is not None:
            return self.origin
        if isinstance(self.x, Images):
            return self.x.fingerprint
        x = self.tensor
        return _hash(repr((tuple(x.shape), x.dtype)).encode(), x.contiguous().numpy().tobytes())

    def label_fingerprint(self) -> str | None:
        """A hash of the labels and class names; None without labels."""
        return None if self.y is None else _hash(repr(self.classes).encode(), self.y.numpy().tobytes())


def _hash(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


@dataclass(frozen=True)
class Dataset:
    """A domain's training and test rows; the same rows if there is no split.

    `name` identifies the dataset in configs: a path or a name such as digits:uci. None: see `dataset_name`.
    """

    train: Domain
    test: Domain
    name: str | None = None


@dataclass(frozen=True)
class Batch:
    """Source rows with labels, target rows without; i_s and i_t are the rows' indices in their domains.

    `x_l` and `y_l` are further target rows with the labels that were given to train on; None where none were.
    `second_t` are the target's rows in another random view, where it is asked for and there is one. `unreadable` maps
    each image that could not be decoded, and was replaced by another, to the reason.
    """

    x_s: "Tensor"
    y_s: "Tensor"
    i_s: "Tensor"
    x_t: "Tensor | None"
    i_t: "Tensor | None"
    second_t: "Tensor | None" = None
    x_l: "Tensor | None" = None
    y_l: "Tensor | None" = None
    unreadable: dict[str, str] = field(default_factory=dict)


def match_labels(domain: Domain, classes: tuple[str, ...]) -> "tuple[Tensor, list[str]]":
    """The domain's labels as indices into `classes`, matched by name, and the names that have no match.

    Labels without a match become −1.

    >>> import torch
    >>> domain = Domain("pets", torch.zeros(3, 2), torch.tensor([0, 1, 1]), ("cat", "dog"))
    >>> match_labels(domain, ("dog", "fish"))
    (tensor([-1,  0,  0]), ['cat'])
    """
    if domain.y is None or domain.classes is None:
        raise UserError(f"{domain.name} has no labels. Expected a label for each row.")
    import torch

    place = {name: i for i, name in enumerate(classes)}
    table = torch.tensor([place.get(name, -1) for name in domain.classes] + [-1])
    present = set(domain.y.tolist())
    strange = [name for i, name in enumerate(domain.classes) if name not in place and i in present]
    return table[domain.y], strange
