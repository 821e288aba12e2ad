"""Mutual information between the target's features and its predictions.

Shapes: B target samples, C classes.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.checks import check_matrix
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = ["mutual_information_loss"]


def mutual_information_loss(logits: Tensor, prior: Tensor | None = None) -> Tensor:
    """L_MI, the negative mutual information of predictions; minimise it (the paper's Eq. for L_MI).

        L_MI = Σ_c P̂^c log P̂^c − (1/B) Σ_j Σ_c P_j^c log P_j^c,    P = softmax(logits),  P̂ = (1/B) Σ_j P_j

    Shape: `logits` (B, C). Between −log C (confident and balanced) and 0 (all predictions alike). The average is over
    the batch, so no less than −log B can be reached when B < C. Computed in float32 or wider.

    The first sum is least when all classes are equally frequent. If they are not, give their frequencies as `prior`
    (C,), positive: Σ_c P̂^c log(P̂^c/prior^c) − log C takes its place, the same thing for a uniform prior.

    >>> import torch
    >>> round(mutual_information_loss(torch.eye(4) * 100).item(), 4)  # −log 4
    -1.3863
    >>> mutual_information_loss(torch.zeros(5, 4)).item()
    0.0
    >>> skewed = torch.eye(2)[[0, 0, 0, 1]] * 100
    >>> fits = mutual_information_loss(skewed, prior=torch.tensor([0.75, 0.25]))
    >>> bool(fits < mutual_information_loss(skewed)), round(fits.item(), 4)  # −log 2
    (True, -0.6931)
    """
    if logits.ndim != 2 or logits.shape[0] == 0:
        raise ValueError(f"logits has shape {tuple(logits.shape)}, expected (samples, classes), at least one sample.")
    check_matrix("logits", logits, None, logits.shape[1], "samples by classes")
    if prior is not None and (tuple(prior.shape) != (logits.shape[1],) or not bool((prior > 0).all())):
        raise ValueError(f"prior has shape {tuple(prior.shape)}, expected {logits.shape[1]} positive frequencies.")
    with full_precision(logits):
        log_p = F.log_softmax(logits.to(computing_dtype(logits)), dim=1)
        p = log_p.exp()
        marginal = p.mean(0)
        # A class of no probability adds nothing, and its logarithm must not make the gradient infinite.
        log_marginal = marginal.clamp_min(torch.finfo(p.dtype).tiny).log()
        if prior is not None:
            log_marginal = log_marginal - (prior.to(p) * prior.numel()).log()
        return (marginal * log_marginal).sum() - (p * log_p).sum(1).mean()
