"""Gradient reversal: the identity whose gradient is turned round (Ganin et al., 2016)."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

__all__ = ["reverse_at", "reverse_gradient"]


def reverse_gradient(x: Tensor, coefficient: float) -> Tensor:
    """X itself; in the backward pass its gradient is multiplied by −α, α = `coefficient`.

    >>> import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> (3 * reverse_gradient(x, 0.5)).sum().backward()
    >>> x.grad
    tensor([-1.5000, -1.5000])
    """
    return cast("Tensor", _Reversal.apply(x, coefficient))  # type: ignore[no-untyped-call]


def reverse_at(loss: Tensor, inputs: Sequence[Tensor], coefficient: float) -> Tensor:
    """The loss itself; its gradient at `inputs` is multiplied by −α, and stays as it is everywhere else.

    What `reverse_gradient` does to a term's inputs beforehand, for a loss that was computed from the plain inputs: so
    one pass through a network serves terms that reverse and terms that do not. The gradient g at the inputs is taken
    first; −(1 + α) g then comes on top of it.

    >>> import torch
    >>> x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    >>> reverse_at((3 * w * x).sum(), [x], 0.5).backward()
    >>> x.grad, w.grad
    (tensor([-1.5000, -1.5000]), tensor([3., 3.]))
    """
    taken = [x for x in inputs if x.requires_grad]
    if not taken or not loss.requires_grad:
        return loss
    grads = torch.autograd.grad(loss, taken, retain_graph=True, allow_unused=True)
    turned = [((x - x.detach()) * g).sum() for x, g in zip(taken, grads, strict=True) if g is not None]  # all zero
    return loss - (1 + coefficient) * torch.stack(turned).sum().to(loss) if turned else loss


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, coefficient: float) -> Tensor:
        cast("Any", ctx).coefficient = coefficient
        return x.view_as(x)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        return grad * -cast("Any", ctx).coefficient, None
