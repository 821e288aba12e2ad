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
