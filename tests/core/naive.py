"""The formulas written out, slowly and in float64: what the fast code is held against."""

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core import ClassMoments


def class_moments(features: Tensor, labels: Tensor, classes: int) -> ClassMoments:
    f = features.double()
    k = f.shape[1]
    count, mean, covariance = (
        torch.zeros(classes, dtype=torch.int64),
        f.new_zeros(classes, k),
        f.new_zeros(classes, k, k),
    )
    for c in range(classes):
        rows = f[labels == c]
        count[c] = len(rows)
        if len(rows):
            mean[c] = rows.mean(0)
            for row in rows:
                covariance[c] += torch.outer(row - mean[c], row - mean[c]) / len(rows)
    return ClassMoments(count, mean, covariance)


def transferable_logits(
    logits: Tensor, labels: Tensor, weight: Tensor, shift: Tensor, covariance: Tensor, strength: float
) -> Tensor:
    z = torch.zeros_like(logits)
    for i, y in enumerate(labels.tolist()):
        for c in range(logits.shape[1]):
            d = weight[c] - weight[y]
            z[i, c] = logits[i, c] + strength * (d @ shift[y]) + 0.5 * strength * (d @ covariance[y] @ d)
    return z


def transferable_cross_entropy(
    logits: Tensor, labels: Tensor, weight: Tensor, shift: Tensor, covariance: Tensor, strength: float
) -> Tensor:
    return F.cross_entropy(transferable_logits(logits, labels, weight, shift, covariance, strength), labels)


def smoothed_bound(
    logits: Tensor, labels: Tensor, weight: Tensor, shift: Tensor, covariance: Tensor, strength: float, epsilon: float
) -> Tensor:
    """Σ_k q_k (bound of E log Σ_c exp z_c − E z_k), each class k as the target in turn, row by row."""
    rows = []
    for i, y in enumerate(labels.tolist()):
        means = torch.stack([z + strength * (w @ shift[y]) for z, w in zip(logits[i], weight, strict=True)])
        spread = torch.stack([0.5 * strength * ((w - weight[y]) @ covariance[y] @ (w - weight[y])) for w in weight])
        # log Σ_c exp z_c = z_y + log Σ_c exp(z_c − z_y), and E exp of a Gaussian is exp(mean + variance/2).
        log_sum = means[y] + sum(torch.exp(m - means[y] + s) for m, s in zip(means, spread, strict=True)).log()
        q = [epsilon / len(weight) + (1 - epsilon) * (k == y) for k in range(len(weight))]
        rows.append(sum(share * (log_sum - m) for share, m in zip(q, means, strict=True)))
    return torch.stack(rows).mean()
