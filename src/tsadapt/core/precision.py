"""Arithmetic in at least float32, whatever the caller's precision."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

__all__ = ["computing_dtype", "full_precision"]


def computing_dtype(*tensors: Tensor) -> torch.dtype:
    """The widest floating-point dtype among the tensors, at least float32.

    >>> computing_dtype(torch.zeros(1, dtype=torch.bfloat16))
    torch.float32
    """
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def full_precision(tensor: Tensor) -> AbstractContextManager[object]:
    """A context without autocast on the tensor's device; nothing where there is none, for entering one has its cost."""
    kind = tensor.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()
