"""Copies of rows that follow a gradient uphill while a spring holds them near where they began.

Shapes: B samples, K features.
"""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["climb"]


def climb(
    start: Tensor, height: Callable[[Tensor], Tensor], steps: int, rate: float, *, spring: float, anchor: Tensor
) -> Tensor:
    """x_{k+1} = x_k + rate·∇(height(x) − spring·‖x − anchor‖²) at x_k, x_0 = `start`: constants, no gradient passes.

    Where the height has a constant slope g, the rows end g/(2·spring) from the anchor, and nowhere else do they go
    further: the distance of a row is at most max(‖start − anchor‖, its largest slope/(2·spring)), as long as
    2·rate·spring ≤ 1. Nothing but `start` gets a gradient on the way, so no parameter's is touched.

    Shapes: `start` and `anchor` (B, K), height a scalar.

    >>> import torch
    >>> x = torch.zeros(1, 1)
    >>> ends = [climb(x, lambda x: 3 * x.sum(), steps, 2.0, spring=0.1, anchor=x) for steps in (1, 100)]
    >>> [round(x.item(), 3) for x in ends]
    [6.0, 15.0]
    """
    if start.shape != anchor.shape:
        raise ValueError(f"start has shape {tuple(start.shape)} and anchor {tuple(anchor.shape)}, expected the same.")
    x, anchor = start.detach(), anchor.detach()
    for _ in range(steps):
        x.requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(height(x), x)
        x = x.detach()
        x = x + rate * (slope - 2 * spring * (x - anchor))
    return x
