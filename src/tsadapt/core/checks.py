"""What the functions of `tsadapt.core` ask of their arguments, and how they say what is wrong."""

import torch
from torch import Tensor

__all__ = [
    "check_classes",
    "check_logits",
    "check_matrix",
    "check_prior",
    "check_range",
    "check_same_device",
    "check_vector",
]

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_matrix(name: str, value: Tensor, rows: int | None, columns: int, why: str) -> None:
    """`value` is a floating-point matrix of `rows` (any number if None) by `columns`."""
    if value.ndim != 2 or value.shape[1] != columns or (rows is not None and value.shape[0] != rows):
        expected = f"({'any' if rows is None else rows}, {columns})"
        raise ValueError(f"{name} has shape {tuple(value.shape)}, expected {expected}: {why}.")
    if not value.is_floating_point():
        raise TypeError(f"{name} has dtype {value.dtype}, expected a floating-point dtype.")


def check_logits(value: Tensor) -> None:
    """`value` are logits: a floating-point matrix of at least one sample by classes."""
    if value.ndim != 2 or value.shape[0] == 0:
        raise ValueError(f"logits has shape {tuple(value.shape)}, expected (samples, classes), at least one sample.")
    check_matrix("logits", value, None, value.shape[1], "samples by classes")


def check_prior(value: Tensor | None, classes: int) -> None:
    """`value` are the frequencies of the classes, all positive, if there are any."""
    if value is not None and (tuple(value.shape) != (classes,) or not bool((value > 0).all())):
        raise ValueError(f"prior has shape {tuple(value.shape)}, expected {classes} positive frequencies.")


def check_vector(name: str, value: Tensor, size: int | None) -> None:
    """`value` is a vector of integers, `size` long (any length if None)."""
    if value.ndim != 1 or (size is not None and value.shape[0] != size):
        expected = "a vector" if size is None else f"({size},)"
        raise ValueError(f"{name} has shape {tuple(value.shape)}, expected {expected}: one integer for each row.")
    if value.dtype not in INTEGERS:
        raise TypeError(f"{name} has dtype {value.dtype}, expected an integer dtype such as torch.int64.")


def check_classes(name: str, value: Tensor, classes: int, what: str = "classes") -> None:
    """Every entry of `value` lies in [0, classes); looked at on a CPU only, where it costs no synchronisation."""
    if value.device.type == "cpu":
        check_range(name, value.tolist(), classes, what)


def check_range(name: str, values: list[int], size: int, what: str) -> None:
    """Every one of `values` lies in [0, size). On a batch, Python's own `min` costs less than a tensor's."""
    if values and (min(values) < 0 or max(values) >= size):
        found = min(values) if min(values) < 0 else max(values)
        raise ValueError(f"{name} contains {found}, expected values from 0 to {size - 1}: there are {size} {what}.")


def check_same_device(**tensors: Tensor | None) -> None:
    """All tensors given are on one device."""
    first, *rest = [(name, t.device) for name, t in tensors.items() if t is not None]
    for name, device in rest:
        if device != first[1]:
            raise ValueError(f"{name} is on {device} but {first[0]} is on {first[1]}: move them to the same device.")
