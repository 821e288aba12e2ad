"""The explicit loss that TSA bounds: M copies of each source feature, drawn from the augmented distribution.

Shapes: B source samples, C classes, K features, M draws for each sample.
"""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.checks import check_classes, check_matrix, check_same_device, check_vector
from tsadapt.core.moments import ClassStatistics, symmetric_root
from tsadapt.core.precision import computing_dtype, full_precision
from tsadapt.core.transferable import Policy, check_statistics, enough_rows, mean_shifts

__all__ = ["sampled_cross_entropy"]


def sampled_cross_entropy(
    features: Tensor,
    labels: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    source: ClassStatistics,
    target: ClassStatistics,
    strength: float,
    samples: int,
    generator: torch.Generator | None = None,
    *,
    mean_shift: bool = True,
    covariance: Literal["target", "none"] = "target",
    policy: Policy = "skip",
    min_count: int = 1,
    logits: Tensor | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """L_M, the cross-entropy over M drawn copies of each feature.

        L_M = (1/B) Σ_i (1/M) Σ_m CE(W f_i^m + b, y_i),    f_i^m ~ N(f_i + λΔμ^y, λΣ_t^y)

    Shapes: `features` (B, K), `labels` (B,), `weight` (C, K), `bias` (C,) or None; λ is `strength`, M is `samples`.
    A draw is λΔμ + √λ Aᵀε with AᵀA = Σ: from a memory, A is the centred rows of the class, so nothing is factorised;
    from moments, the detached symmetric root. It is made after the product with W, in C numbers instead of K. The
    gradient reaches `features`, `weight` and `bias`. Draws come from the generator on its own device, so that they are
    the same wherever the features are. Switches, `policy` and `min_count` as in `transferable_logits`. `logits` (B, C)
    are those that the network gave for the features, where dropout stands between the two; copies move them.
    `label_smoothing` is that of the cross-entropy.

    >>> import torch
    >>> from tsadapt.core import ClassMoments
    >>> W, f, y = torch.eye(2), torch.zeros(1, 2), torch.tensor([0])
    >>> still = ClassMoments(torch.tensor([1, 1]), torch.zeros(2, 2), torch.zeros(2, 2, 2))
    >>> round(sampled_cross_entropy(f, y, W, None, still, still, 1.0, samples=3).item(), 4)  # log 2
    0.6931
    """
    if weight.ndim != 2:
        raise ValueError(f"weight has shape {tuple(weight.shape)}, expected (classes, features).")
    c, k = weight.shape
    check_matrix("features", features, None, k, f"weight is ({c}, {k})")
    check_vector("labels", labels, features.shape[0])
    check_same_device(features=features, labels=labels, weight=weight, bias=bias)
    check_classes("labels", labels, c)
    for name, statistics in (("source", source), ("target", target)):
        check_statistics(name, statistics, weight)
    if covariance not in ("target", "none"):
        raise ValueError(f"covariance is {covariance!r}, expected 'target' or 'none'.")
    if samples < 1:
        raise ValueError(f"samples is {samples}, expected at least 1.")
    if strength < 0:
        raise ValueError(f"strength is {strength}, expected zero or more: it scales a covariance.")

    with full_precision(features):
        dtype = computing_dtype(features, weight)
        w = weight.to(dtype)
        if logits is None:
            logits = F.linear(features.to(dtype), w, None if bias is None else bias.to(dtype))
        logits = logits.to(dtype)
        if strength == 0:  # all copies are the feature itself
            return F.cross_entropy(logits, labels, label_smoothing=label_smoothing)
        classes, place = torch.unique(labels, return_inverse=True)
        means_s, means_t = source.class_means(classes), target.class_means(classes)
        enough = enough_rows([means_s[0], means_t[0]], policy, min_count, w.device)
        shift = mean_shifts(source, target, means_s, means_t, enough, policy).to(w)
        each: list[Tensor] = []
        order: list[Tensor] = []
        for p, label in enumerate(classes.tolist()):
            mine = place.eq(p).nonzero()[:, 0]
            moved = logits.index_select(0, mine)[:, None]  # (b, 1, C), b samples of this class
            few = enough is not None and not bool(enough[p])
            if not (few and policy == "skip"):
                a = symmetric_root(target.pooled().covariance[0]) if few else target.factor(label)
                if mean_shift:
                    moved = moved + strength * (w @ shift[p])
                if covariance == "target":
                    along = a.to(w) @ w.T  # (r, C)
                    shape, where = (mine.numel(), samples, a.shape[0]), None if generator is None else generator.device
                    eps = torch.randn(shape, generator=generator, dtype=dtype, device=where).to(w.device)
                    moved = moved + math.sqrt(strength) * (eps @ along)
            each.append(moved.expand(-1, samples, -1))
            order.append(mine)
        drawn = torch.cat(each)  # (B, M, C), by class
        y = labels.index_select(0, torch.cat(order)).to(torch.int64)
        return F.cross_entropy(drawn.flatten(0, 1), y.repeat_interleave(samples), label_smoothing=label_smoothing)
