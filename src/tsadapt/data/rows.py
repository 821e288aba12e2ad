"""Rows in memory: tensors, or plain arrays for what does without torch (an exported model)."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["as_rows", "plain_arrays"]

_plain = ContextVar("plain", default=False)


def as_rows(array: np.ndarray) -> "Tensor":
    """The array as a tensor, which shares its memory; inside `plain_arrays`, the array itself.

    >>> as_rows(np.eye(2)).dtype
    torch.float64
    """
    if _plain.get():
        return array  # type: ignore[return-value]
    import torch

    return torch.from_numpy(array)


@contextmanager
def plain_arrays() -> Iterator[None]:
    """Inside, domains that are read hold NumPy arrays, and torch is not imported: to be used, not to be trained on.

    >>> with plain_arrays():
    ...     type(as_rows(np.eye(2))).__name__
    'ndarray'
    """
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)
