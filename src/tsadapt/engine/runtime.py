"""Where and how precisely a run computes."""

from contextlib import AbstractContextManager, nullcontext

import torch

from tsadapt.config import Precision
from tsadapt.errors import UserError

__all__ = ["autocast", "pick_device"]


def pick_device(name: str) -> torch.device:
    """The device of that name; "auto" takes CUDA if it is there, and else the CPU.

    (Apple's MPS has no float64, which the class-wise sums are kept in.)

    >>> pick_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"Device {name!r} cannot be used here: {reason} Try --device auto or cpu.") from error
    return device


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """The context in which networks are forwarded."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bf16" else nullcontext()
