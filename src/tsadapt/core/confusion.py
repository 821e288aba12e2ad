"""How often a batch of predictions confuses one class with another.

Shapes: B samples, C classes.
"""

from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.adversarial import certainty_weights
from tsadapt.core.checks import check_logits, check_prior
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = ["class_confusion_loss"]


def class_confusion_loss(logits: Tensor, temperature: float = 2.5, prior: Tensor | None = None) -> Tensor:
    """The share of class confusion between predictions, averaged over the classes (MCC; Jin et al., 2020).

        P = softmax(logits/τ),  w_j ∝ 1 + exp(−H(P_j)),  M = Pᵀ diag(w) P,  loss = 1 − (1/C) Σ_c M_cc / Σ_c' M_cc'

    Shape: `logits` (B, C). Between 0 (certain predictions of every class) and 1; uniform ones give 1 − 1/C, and a class
    that no row predicts counts as confused, so no less than 1 − B/C can be reached when B < C. The weights w are
    constants. With class shares `prior` π (C,) each class counts by its share: 1 − Σ_c π_c M_cc / Σ_c' M_cc'. Computed
    in float32 or wider.

    The rows of P sum to one, so Σ_c' M_cc' = Σ_j w_j P_jc, and a row of M over its sum is Σ_j a_jc P_j with
    a = softmax over the batch of (log P + log w): no division, whatever the logits.

    >>> import torch
    >>> round(class_confusion_loss(torch.zeros(6, 4)).item(), 4)  # 1 − 1/4
    0.75
    >>> class_confusion_loss(torch.eye(4) * 1e4).item()
    0.0
    """
    check_logits(logits)
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, expected more than zero.")
    check_prior(prior, logits.shape[1])
    with full_precision(logits):
        z = logits.to(computing_dtype(logits)) / temperature
        log_p = F.log_softmax(z, dim=1)
        a = F.softmax(log_p + certainty_weights(z.detach()).log()[:, None], dim=0)
        if prior is not None:
            return 1 - ((a * log_p.exp()).sum(0) * prior.to(a)).sum()
        return 1 - (a * log_p.exp()).sum() / logits.shape[1]
