"""Sharpness-aware steps: how far, and where to, weights move before the gradient is taken."""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["uphill"]


def uphill(slopes: Sequence[Tensor], radius: float) -> list[Tensor]:
    """ε = ρ·g/‖g‖, the step of length ρ up the slope g of all parameters together; none where there is no slope.

    To first order it is where the loss is largest within ρ of the weights (sharpness-aware minimisation; Foret et al.,
    2021). ρ is `radius`.

    Shapes: one slope for each parameter, of its shape.

    >>> import torch
    >>> uphill([torch.tensor([3.0]), torch.tensor([4.0])], 0.5)  # a slope of length 5
    [tensor([0.3000]), tensor([0.4000])]
    """
    if not slopes:
        return []
    # In float64: squares of small slopes vanish in float32, and a slope of no length has no direction.
    length = float(torch.stack([torch.linalg.vector_norm(g.detach(), dtype=torch.float64) for g in slopes]).norm())
    return [radius * (g.detach() / length) if length > 0 else torch.zeros_like(g) for g in slopes]
