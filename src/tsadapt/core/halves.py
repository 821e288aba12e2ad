"""Two classifiers of one set of classes as the halves of one softmax over 2C: which half is how likely.

    p = softmax([z_s, z_t]),   P_s = Σ_c p_c,   P_t = Σ_c p_{C+c}

Shapes: B samples, C classes.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.checks import check_logits, check_matrix
from tsadapt.core.information import conditional_entropy
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = ["half_confusion_loss", "half_logit", "joint_entropy"]


def half_logit(logits_s: Tensor, logits_t: Tensor) -> Tensor:
    """D = log(P_s/P_t) = log Σ_c exp z_s^c − log Σ_c exp z_t^c: the two halves as a discriminator, high for the source.

    P_s = σ(d), so −log P_s and −log P_t are those of a discriminator (`domain_loss`), finite however sure a half is.

    Shapes: `logits_s` and `logits_t` (B, C), d (B,).

    >>> import torch
    >>> half_logit(torch.zeros(1, 3), torch.zeros(1, 3))
    tensor([0.])
    """
    _check(logits_s, logits_t)
    with full_precision(logits_s):
        dtype = computing_dtype(logits_s, logits_t)
        return logits_s.to(dtype).logsumexp(1) - logits_t.to(dtype).logsumexp(1)


def half_confusion_loss(half_logits: Tensor) -> Tensor:
    """L = −½ mean log P_s − ½ mean log P_t: least, log 2, where each row gives both halves the same probability.

    Shape: `half_logits` d (B,), P_s = σ(d).

    >>> import torch
    >>> round(half_confusion_loss(torch.zeros(3)).item(), 6)
    0.693147
    """
    return 0.5 * (F.softplus(-half_logits) + F.softplus(half_logits)).mean()


def joint_entropy(logits_s: Tensor, logits_t: Tensor) -> Tensor:
    """H = −1/B Σ_i Σ_c q_i^c log q_i^c, q^c = p_c + p_{C+c}: the entropy of the classes, whichever half they are in.

    Shapes: `logits_s` and `logits_t` (B, C). Between 0 and log C.

    >>> import torch
    >>> round(joint_entropy(torch.zeros(2, 4), torch.zeros(2, 4)).item(), 4)  # log 4
    1.3863
    """
    _check(logits_s, logits_t)
    with full_precision(logits_s):
        dtype = computing_dtype(logits_s, logits_t)
        return conditional_entropy(torch.logaddexp(logits_s.to(dtype), logits_t.to(dtype)))


def _check(logits_s: Tensor, logits_t: Tensor) -> None:
    check_logits(logits_s)
    check_matrix("logits_t", logits_t, len(logits_s), logits_s.shape[1], "that of logits_s")
