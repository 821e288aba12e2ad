"""Logits of many rows and classes: a table, or, where that would be large, the factors that give it block by block.

Shapes: N rows, C classes, D features of the last layer (those of all heads, side by side).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["MOST_CELLS", "FactoredLogits", "Logits", "blocks", "guesses", "log_softmax", "row_blocks", "softmax"]

MOST_CELLS = 1 << 24
"""Rows times classes up to which logits are a table: 64 MB. 20,000 rows of 10,000 classes would take 800."""

BLOCK_CELLS = 1 << 21
"""Rows times classes of a block: 16 MB in float64, of which there are a few at a time."""


@dataclass(frozen=True, eq=False)
class FactoredLogits:
    """Z = F Wᵀ + b, of which the factors alone are kept: `features` F (N, D), `weight` W (C, D), `bias` b (C,).

    >>> z = FactoredLogits(np.eye(2), np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]), np.array([0.0, 0.0, 1.0]))
    >>> z.shape, guesses(z).tolist(), guesses(z[1:]).tolist()
    ((2, 3), [2, 1], [1])
    """

    features: np.ndarray
    weight: np.ndarray
    bias: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """(N, C)."""
        return len(self.features), len(self.weight)

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, rows: slice | np.ndarray) -> "FactoredLogits":
        return FactoredLogits(self.features[rows], self.weight, self.bias)

    def __array__(self, dtype: np.typing.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """The whole table, for those who have the memory."""
        table: np.ndarray = self.features @ self.weight.T + self.bias
        return table if dtype is None else table.astype(dtype, copy=False)

    @property
    def factors(self) -> dict[str, np.ndarray]:
        """F, W and b by their names."""
        return {"features": self.features, "weight": self.weight, "bias": self.bias}

    @property
    def finite(self) -> bool:
        """Whether all factors are."""
        return all(bool(np.isfinite(factor).all()) for factor in self.factors.values())

    @cached_property
    def guess(self) -> np.ndarray:
        """The class of the largest logit in every row."""
        return _joined([block.argmax(1) for block in blocks(self)], np.int64)


Logits = np.ndarray | FactoredLogits


def blocks(logits: Logits) -> Iterator[np.ndarray]:
    """The rows of logits in order, some at a time; a table is a single block."""
    if isinstance(logits, np.ndarray):
        yield logits
        return
    for rows in row_blocks(*logits.shape):
        yield np.asarray(logits[rows])


def row_blocks(rows: int, classes: int) -> list[slice]:
    """Blocks of rows whose logits are in memory at a time.

    >>> row_blocks(5, BLOCK_CELLS // 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    size = max(BLOCK_CELLS // max(classes, 1), 1)
    return [slice(start, start + size) for start in range(0, rows, size)]


def guesses(logits: Logits) -> np.ndarray:
    """The class of the largest logit in every row: (N,)."""
    found: np.ndarray = logits.argmax(1) if isinstance(logits, np.ndarray) else logits.guess
    return found


def softmax(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis, in float64."""
    p: np.ndarray = np.exp(log_softmax(logits))
    return p


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log softmax over the last axis, in float64.

    >>> log_softmax(np.array([1e4, 0.0])).tolist()
    [0.0, -10000.0]
    """
    z = logits.astype(np.float64)
    z = z - z.max(-1, keepdims=True)
    log_p: np.ndarray = z - np.log(np.exp(z).sum(-1, keepdims=True))
    return log_p


def _joined(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=dtype)
