"""What data is here: a domain, the two of a task, and a batch. A training batch has no field for target labels.

Shapes: N rows; images (N, channels, height, width) as uint8, feature vectors (N, K) as float32, or image files.
"""

import hashlib
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from tsadapt.data.images import Images
from tsadapt.errors import UserError

__all__ = ["Batch", "Dataset", "Domain", "Unreadable", "match_labels"]

Kind = Literal["image", "vector", "file"]

Unreadable = dict[int, str]
"""Images of a domain that could not be decoded: their rows, and why."""


@dataclass(frozen=True)
class Domain:
    """Rows in memory, or images that are read when needed, with labels (indices into `classes`) if they are known.

    `row_names` are what `predict` calls the rows: paths of images; None means their numbers. `columns` are the names of
    a table's features. `notes` are what a user should hear of how the data was found. `origin` is the
    fingerprint of what the rows were computed from.
    """

    name: str
    x: Tensor | Images
    y: Tensor | None = None
    classes: tuple[str, ...] | None = None
    split: str = "all"
    row_names: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    origin: str | None = None

    def __post_init__(self) -> None:
        if len(self.x) == 0:
            raise UserError(f"{self.name} ({self.split}) has no rows: nothing to learn from or to predict.")
        if self.y is not None:
            if self.classes is None or len(self.y) != len(self.x):
                raise UserError(f"{self.name} has {len(self.x)} rows but {len(self.y)} labels.")
            if int(self.y.min()) < -1 or int(self.y.max()) >= len(self.classes):
                raise UserError(f"{self.name} has labels outside its {len(self.classes)} classes.")
        if isinstance(self.x, Tensor) and self.x.is_floating_point() and not bool(self.x.isfinite().all()):
            row, column = (~self.x.isfinite()).flatten(1).nonzero()[0].tolist()
            raise UserError(f"{self.name} has a value that is not a number in row {row}, feature {column}.")

    def __len__(self) -> int:
        return len(self.x)

    @property
    def kind(self) -> Kind:
        """Images in memory, feature vectors, or images that are read when needed."""
        return "file" if isinstance(self.x, Images) else "image" if self.x.ndim == 4 else "vector"

    @property
    def tensor(self) -> Tensor:
        """The rows in memory."""
        if isinstance(self.x, Images):
            raise ValueError(f"{self.name} is not in memory")
        return self.x

    def unlabelled(self) -> "Domain":
        """The same rows without their labels: what training may see of a target."""
        return replace(self, y=None, classes=None)

    def keep(self, rows: list[int]) -> "Domain":
        """Some of the rows."""
        return replace(
            self,
            x=self.x.keep(rows) if isinstance(self.x, Images) else self.x[rows],
            y=None if self.y is None else self.y[rows],
            row_names=None if self.row_names is None else tuple(self.row_names[row] for row in rows),
        )

    def row_name(self, row: int) -> str:
        """What a row is called: its path, or its number."""
        return self.row_names[row] if self.row_names else str(row)

    def fingerprint(self) -> str:
        """A hash of the rows as they were given, without the labels: data that changed is noticed."""
        if self.origin is not None:
            return self.origin
        if isinstance(self.x, Images):
            return self.x.fingerprint
        return _hash(repr((tuple(self.x.shape), self.x.dtype)).encode(), self.x.contiguous().numpy().tobytes())

    def label_fingerprint(self) -> str | None:
        """A hash of the labels and the names of the classes; None without labels."""
        return None if self.y is None else _hash(repr(self.classes).encode(), self.y.numpy().tobytes())


def _hash(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


@dataclass(frozen=True)
class Dataset:
    """A domain's rows to train on and to evaluate on; the same ones where there is no split of its own."""

    train: Domain
    test: Domain


@dataclass(frozen=True)
class Batch:
    """Source rows with labels, target rows without; i_s and i_t are the rows' indices in their domains.

    `unreadable` names the images (and their domain) that could not be decoded and gave way to others, and says why.
    """

    x_s: Tensor
    y_s: Tensor
    i_s: Tensor
    x_t: Tensor | None
    i_t: Tensor | None
    unreadable: dict[str, str] = field(default_factory=dict)


def match_labels(domain: Domain, classes: tuple[str, ...]) -> tuple[Tensor, list[str]]:
    """The domain's labels as indices into `classes`, matched by name; −1 for a class that is not among them.

    Also the names of those classes.

    >>> import torch
    >>> domain = Domain("pets", torch.zeros(3, 2), torch.tensor([0, 1, 1]), ("cat", "dog"))
    >>> match_labels(domain, ("dog", "fish"))
    (tensor([-1,  0,  0]), ['cat'])
    """
    if domain.y is None or domain.classes is None:
        raise UserError(f"{domain.name} has no labels to compare with.")
    place = {name: i for i, name in enumerate(classes)}
    table = torch.tensor([place.get(name, -1) for name in domain.classes] + [-1])
    present = set(domain.y.tolist())
    strange = [name for i, name in enumerate(domain.classes) if name not in place and i in present]
    return table[domain.y], strange
