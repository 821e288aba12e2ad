"""Two literal implementations of the transferable cross-entropy, as the opponents of our benchmark.

Both recompute all class means of both domains and every full target covariance from the whole memory, then the
per-sample products, exactly as the formula is written. They differ only in how they gather the statistics.

Shapes: N rows of a memory, C classes, K features, B samples in the batch.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def published_statistics(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Class means and covariances through N×C×K expansions, the way of the published TSA and ISDA code."""
    n, k = features.shape
    expanded = features.view(n, 1, k).expand(n, classes, k)
    onehot = F.one_hot(labels, classes).to(features.dtype).view(n, classes, 1).expand(n, classes, k)
    by_class = expanded.mul(onehot)
    amount = onehot.sum(0)
    amount[amount == 0] = 1
    mean = by_class.sum(0) / amount
    centred = (by_class - mean.expand(n, classes, k).mul(onehot)).permute(1, 2, 0)
    return mean, torch.bmm(centred, centred.permute(0, 2, 1)).div(amount.view(classes, k, 1).expand(classes, k, k))


def published_mean(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Class means alone, through the same expansion."""
    n, k = features.shape
    onehot = F.one_hot(labels, classes).to(features.dtype).view(n, classes, 1).expand(n, classes, k)
    amount = onehot.sum(0)
    amount[amount == 0] = 1
    return features.view(n, 1, k).expand(n, classes, k).mul(onehot).sum(0) / amount


def sensible_statistics(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Class means and covariances by a loop over the classes, each on its own rows."""
    k = features.shape[1]
    mean = features.new_zeros(classes, k)
    covariance = features.new_zeros(classes, k, k)
    for c in range(classes):
        rows = features[labels == c]
        if len(rows):
            mean[c] = rows.mean(0)
            centred = rows - mean[c]
            covariance[c] = centred.T @ centred / len(rows)
    return mean, covariance


def sensible_mean(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Class means by a loop over the classes."""
    mean = features.new_zeros(classes, features.shape[1])
    for c in range(classes):
        rows = features[labels == c]
        if len(rows):
            mean[c] = rows.mean(0)
    return mean


def literal_loss(
    logits: Tensor, labels: Tensor, weight: Tensor, shift: Tensor, covariance: Tensor, strength: float
) -> Tensor:
    """L_∞ with one C×K by K×K by K×C product for every sample of the batch, of which the diagonal is kept."""
    b, c = logits.shape
    k = weight.shape[1]
    w_c = weight.expand(b, c, k)
    w_y = w_c.gather(1, labels.view(b, 1, 1).expand(b, c, k))
    d = w_c - w_y
    sigma = strength * torch.bmm(torch.bmm(d, covariance[labels]), d.permute(0, 2, 1))
    sigma = sigma.mul(torch.eye(c).expand(b, c, c)).sum(2)
    mean_term = strength * torch.bmm(d, shift[labels].view(b, k, 1)).view(b, c)
    return F.cross_entropy(logits + mean_term + 0.5 * sigma, labels)
