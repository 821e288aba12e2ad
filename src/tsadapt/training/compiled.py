"""The network's pass in training, compiled by torch.compile: the same numbers but for rounding.

What is compiled stands beside the network, which stays as it is: its state, its copies and its evaluation know nothing
of it, and neither does a checkpoint.
"""

import os
import shutil
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from tsadapt.errors import UserError

__all__ = ["check_compiler", "compiled"]

LEAVE_OUT = "Leave out --compile: nothing else changes."


def check_compiler(device: torch.device) -> None:
    """Refuse to compile where there is nothing to compile with: a C++ compiler for a CPU, Triton for a GPU."""
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            raise UserError(f"--compile needs Triton on a GPU, which is not installed here. {LEAVE_OUT}")
        return
    usual = {"win32": "cl", "darwin": "clang++"}.get(sys.platform, "g++")
    name = os.environ.get("CXX") or usual
    if shutil.which(name) is None:
        raise UserError(f"--compile needs a C++ compiler, and {name} is not found: install it, or set CXX. {LEAVE_OUT}")


def compiled(network: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A pass through the network that is compiled when it is first called, once for each shape of a batch.

    Dropout draws what it draws uncompiled. Shapes are compiled as they are, so that a run that goes on from a
    checkpoint computes with the same code.
    """
    torch.compiler.reset()  # it gives up silently after a few networks of one class, as a sweep in one process has
    made = torch.compile(network, dynamic=False, options={"fallback_random": True})

    def forward(x: Tensor) -> Tensor:
        from torch._dynamo.exc import TorchDynamoException  # takes a second to import

        try:
            return made(x)
        except TorchDynamoException as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = lines[0] if lines else type(error).__name__
            raise UserError(f"This network cannot be compiled here: {reason.rstrip('.')}. {LEAVE_OUT}") from error

    return forward
