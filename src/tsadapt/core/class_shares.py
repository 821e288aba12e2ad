"""How often each class occurs among rows without labels, by the predictions for them.

Shapes: n rows, C classes.
"""

import torch
from torch import Tensor

from tsadapt.core.checks import check_matrix
from tsadapt.core.precision import full_precision

__all__ = ["class_shares_by_em"]


@torch.no_grad()
def class_shares_by_em(
    predictions: Tensor, prior: Tensor, weight: Tensor | None = None, steps: int = 1000, tolerance: float = 1e-6
) -> Tensor:
    """The class shares π (C,) that make the predictions most likely, by EM (Saerens et al., 2002).

        P_jc ∝ π_c/π⁰_c · p_jc,    π_c ← Σ_j w_j P_jc / Σ_j w_j,    from π = π⁰ until no share changes any more

    Shapes: `predictions` p (n, C), probabilities; `prior` π⁰ (C,), the shares among the rows that the network learned
    from; `weight` w (n,), one for each row unless given. A class without share there gets none. It assumes that the
    rows of a class look alike in both sets, and that the probabilities mean what they say. Computed in float64.

    >>> import torch
    >>> p = torch.tensor([[0.8, 0.2], [0.2, 0.8]])[[0, 0, 0, 1]]
    >>> class_shares_by_em(p, torch.tensor([0.5, 0.5])).round(decimals=3).tolist()  # 0.8 π + 0.2 (1 − π) = 3/4
    [0.917, 0.083]
    """
    check_matrix("predictions", predictions, None, predictions.shape[-1], "rows by classes")
    n, classes = predictions.shape
    if tuple(prior.shape) != (classes,) or not bool((prior >= 0).all()) or not bool(prior.sum() > 0):
        raise ValueError(f"prior has shape {tuple(prior.shape)}, expected {classes} shares, not all zero.")
    if not n or (weight is not None and tuple(weight.shape) != (n,)):
        found = "no rows" if not n else f"weight of shape {tuple(weight.shape) if weight is not None else ()}"
        raise ValueError(f"class_shares_by_em got {found}, expected one weight for each of at least one row.")
    with full_precision(predictions):
        p = predictions.double()
        tiny = torch.finfo(p.dtype).tiny
        start = (prior.to(p) / prior.sum().to(p)).clamp_min(0)
        p = torch.where(start > 0, p, 0.0)
        w = torch.full((n,), 1 / n).to(p) if weight is None else weight.to(p) / weight.sum().to(p)
        share = start
        for _ in range(steps):
            joint = p * torch.where(start > 0, share / start.clamp_min(tiny), 0.0)
            new = w @ (joint / joint.sum(1, keepdim=True).clamp_min(tiny))
            new = new / new.sum().clamp_min(tiny)
            moved, share = float((new - share).abs().max()), new
            if moved < tolerance:
                break
        return share
