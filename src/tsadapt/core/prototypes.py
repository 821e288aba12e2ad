"""Augmented features beside the class means of the target batch.

Shapes: B_s source samples, B_t target samples, K features, C classes.
"""

import torch
from torch import Tensor

from tsadapt.core.checks import check_matrix, check_vector
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = ["prototype_distance"]


def prototype_distance(
    source: Tensor,
    labels: Tensor,
    target: Tensor,
    guesses: Tensor,
    shift: Tensor | None = None,
    variance: Tensor | None = None,
    strength: float = 1.0,
) -> Tensor:
    """E ‖f̃_i − m^y‖², the mean distance of copies f̃_i ~ N(f_i + λΔμ^y, λΣ^y) to the batch's target mean of class y.

        mean_i (‖f_i + λΔμ^y − m^y‖² + λ tr Σ^y),    m^y = mean of the target samples guessed as y = y_i

    over the source samples whose class has target samples in the batch; 0 if there is none. It is T²SA's prototype
    constraint.

    Shapes: `source` f (B_s, K), `labels` y (B_s,), `target` (B_t, K), `guesses` (B_t,), `shift` Δμ (C, K) and
    `variance` tr Σ (C,), constants, None for zero; λ is `strength`. The gradient reaches both features. In float32 or
    wider.

    >>> import torch
    >>> f, m = torch.tensor([[1.0], [5.0]]), torch.tensor([[2.0], [4.0]])
    >>> prototype_distance(f, torch.tensor([0, 1]), m, torch.tensor([0, 0])).item()  # (1 − 3)²; class 1 has no target
    4.0
    """
    check_matrix("source", source, None, target.shape[-1], "samples by features")
    check_matrix("target", target, None, source.shape[-1], "samples by features")
    check_vector("labels", labels, source.shape[0])
    check_vector("guesses", guesses, target.shape[0])
    with full_precision(source):
        f, t = (x.to(computing_dtype(source, target)) for x in (source, target))
        met, place = torch.unique(guesses, return_inverse=True)
        total = t.new_zeros(met.shape[0], t.shape[1]).index_add(0, place, t)
        mean = total / torch.bincount(place, minlength=met.shape[0])[:, None].to(t)
        same = labels[:, None] == met  # (B_s, P)
        there = same.any(1).to(f)
        moved = f if shift is None else f + strength * shift.detach().to(f).index_select(0, labels)
        each = (moved - same.to(f) @ mean).square().sum(1)
        if variance is not None:
            each = each + strength * variance.detach().to(f).index_select(0, labels)
        mean_distance: Tensor = (there * each).sum() / there.sum().clamp_min(1)
        return mean_distance
