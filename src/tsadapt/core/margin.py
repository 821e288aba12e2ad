"""Margin disparity discrepancy: a second classifier that agrees with the first on the source and not on the target.

Shapes: B_s and B_t samples, C classes.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.checks import check_classes, check_matrix, check_vector
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = ["margin_disparity_loss"]


def margin_disparity_loss(
    logits_s: Tensor, predicted_s: Tensor, logits_t: Tensor, predicted_t: Tensor, gamma: float = 4.0
) -> Tensor:
    """γ CE(h'(x^s), ŷ^s) − mean log(1 − softmax h'(x^t)[ŷ^t]): what a second classifier h' minimises (MDD).

    ŷ are the predictions of the first classifier, `logits` those of the second (Zhang et al., 2019). At its least, h'
    agrees with ŷ on the source, and on the target as little as it can; where it cannot tell the domains, it gives ŷ the
    probability γ/(1 + γ). log(1 − p_y) is computed as log Σ_{c≠y} exp z_c − log Σ_c exp z_c, which is finite and keeps
    its gradient however sure h' is.

    Shapes: `logits_s` (B_s, C), `predicted_s` (B_s,), `logits_t` (B_t, C), `predicted_t` (B_t,), C ≥ 2.

    >>> import torch
    >>> y = torch.zeros(3, dtype=torch.int64)
    >>> round(margin_disparity_loss(torch.zeros(3, 31), y, torch.zeros(3, 31), y, gamma=4).item(), 5)
    13.76874
    """
    classes = logits_s.shape[-1]
    check_matrix("logits_s", logits_s, None, classes, "samples by classes")
    check_matrix("logits_t", logits_t, None, classes, f"logits_s has {classes} classes")
    if classes < 2:
        raise ValueError(f"logits_s has {classes} class, expected at least 2: there is no other class to choose.")
    for name, predicted, logits in (("predicted_s", predicted_s, logits_s), ("predicted_t", predicted_t, logits_t)):
        check_vector(name, predicted, len(logits))
        check_classes(name, predicted, classes)
    with full_precision(logits_s):
        dtype = computing_dtype(logits_s, logits_t)
        agree = F.cross_entropy(logits_s.to(dtype), predicted_s.long())
        z = logits_t.to(dtype)
        chosen = F.one_hot(predicted_t.long(), classes).bool()
        others = z.masked_fill(chosen, -torch.inf)
        disagree = (z.logsumexp(1) - others.logsumexp(1)).mean()
        return gamma * agree + disagree
