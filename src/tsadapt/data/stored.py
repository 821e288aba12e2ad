"""Rows that lie on the disk and are read as they are needed: activations of images, in one or several views.

Shapes: N rows of some shape, float16; V views.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tsadapt.data.rows import as_rows

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["StoredRows"]


class StoredRows:
    """N rows as evaluation sees them, and as many `views` of each for training (none: training sees the same).

    The rows are arrays, memory-mapped, one after the other; `order` are the numbers of those that count.
    """

    def __init__(
        self, rows: Sequence[np.ndarray], views: Sequence[Sequence[np.ndarray]] = (), order: np.ndarray | None = None
    ) -> None:
        self._rows, self._views = rows, views
        self._starts = np.cumsum([0, *map(len, rows)])
        self._order = np.arange(self._starts[-1]) if order is None else order

    def __len__(self) -> int:
        return len(self._order)

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, …)."""
        return (len(self), *self._rows[0].shape[1:])

    @property
    def views(self) -> int:
        """V."""
        return len(self._views)

    def __getitem__(self, rows: "slice | list[int] | Tensor") -> "Tensor":
        """Rows as evaluation sees them, read into memory."""
        chosen = self._order[rows if isinstance(rows, slice | list) else rows.numpy()]
        return self._read([(self._rows, row) for row in chosen])

    def seen(self, rows: "Tensor", view: Sequence[int]) -> "Tensor":
        """Rows (B,) in training, each in the view of that number (modulo V)."""
        if not self._views:
            return self[rows]
        chosen = self._order[rows.numpy()]
        return self._read([(self._views[v % self.views], row) for v, row in zip(view, chosen, strict=True)])

    def keep(self, rows: list[int]) -> "StoredRows":
        """A subset of the rows; nothing is read."""
        return StoredRows(self._rows, self._views, self._order[rows])

    def _read(self, places: list[tuple[Sequence[np.ndarray], int]]) -> "Tensor":
        out = np.empty((len(places), *self.shape[1:]), self._rows[0].dtype)
        for i, (parts, row) in enumerate(places):
            part = int(np.searchsorted(self._starts, row, side="right")) - 1
            out[i] = parts[part][row - self._starts[part]]
        return as_rows(out)
