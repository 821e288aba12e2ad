"""Gradient reversal: the identity whose gradient is turned round (Ganin et al., 2016)."""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

__all__ = ["reverse_gradient"]


def reverse_gradient(x: Tensor, coefficient: float) -> Tensor:
    """X itself; in the backward pass its gradient is multiplied by −α, α = `coefficient`.

    >>> import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> (3 * reverse_gradient(x, 0.5)).sum().backward()
    >>> x.grad
    tensor([-1.5000, -1.5000])
    """
    return cast("Tensor", _Reversal.apply(x, coefficient))  # type: ignore[no-untyped-call]


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, coefficient: float) -> Tensor:
        cast("Any", ctx).coefficient = coefficient
        return x.view_as(x)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        return grad * -cast("Any", ctx).coefficient, None
