"""The transferable cross-entropy of TSA: the expected loss over infinitely many target-like copies, in closed form.

Shapes: B source samples, C classes, K features, P classes present in the batch.
    logits   (B, C)   ŷ = W f + b of the source features
    labels   (B,)     y
    weight   (C, K)   W, the weight of the last linear layer; the derivation needs a head linear in the features
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.checks import check_classes, check_matrix, check_same_device, check_vector
from tsadapt.core.moments import ClassStatistics, quadratic_forms
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = [
    "Covariance",
    "Policy",
    "check_statistics",
    "enough_rows",
    "mean_shifts",
    "transferable_cross_entropy",
    "transferable_logits",
]

Policy = Literal["skip", "official", "global"]
"""What happens to a class with fewer than `min_count` rows; see `transferable_logits`."""

Covariance = Literal["target", "source", "none"]
"""Whose covariance spreads the augmented features."""


def transferable_logits(
    logits: Tensor,
    labels: Tensor,
    weight: Tensor,
    source: ClassStatistics | None,
    target: ClassStatistics | None,
    strength: float | Tensor,
    *,
    mean_shift: bool = True,
    common_shift: bool = True,
    covariance: Covariance = "target",
    policy: Policy = "skip",
    min_count: int = 1,
) -> Tensor:
    """The logits Z whose cross-entropy is the bound L_∞ (the paper's Eq. for the surrogate loss).

        Z_i^c = ŷ_i^c + λ (w_c − w_y)·Δμ^y + ½ λ (w_c − w_y)ᵀ Σ_t^y (w_c − w_y),    y = y_i

    Shapes: `logits` (B, C), `labels` (B,), `weight` (C, K); λ is `strength`, one number or λ^y (C,). `source` and
    `target` are a `FeatureMemory`, `RowStatistics`, `IterativeMoments` or `ClassMoments` of C classes and K features,
    and are constants: the gradient reaches `logits` and `weight`. Computed in float32 or wider, also under autocast.

    Switches: `mean_shift=False` leaves out Δμ; `covariance="none"` leaves out Σ; ISDA is
    `mean_shift=False, covariance="source"` (then `target` may be None). `common_shift=False` takes off Δμ^y what all
    classes share: its mean over the classes with `min_count` rows in both domains.

    A class that has fewer than `min_count` rows in a domain that is used follows `policy`:
    "skip" leaves its logits as they are (plain cross-entropy); "official" does what the published code does, taking
    the mean of no rows as zero; "global" takes the shift between all rows and the average within-class covariance.

    >>> import torch
    >>> from tsadapt.core import ClassMoments
    >>> W, f = torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.5, 0.0]])
    >>> many = torch.tensor([9, 9])
    >>> source = ClassMoments(many, torch.zeros(2, 2), torch.zeros(2, 2, 2))
    >>> target = ClassMoments(many, torch.tensor([[0.4, 0.0], [0.4, 0.0]]), 0.2 * torch.eye(2).expand(2, 2, 2))
    >>> transferable_logits(f @ W.T, torch.tensor([0]), W, source, target, strength=0.5)
    tensor([[0.0000, 0.7500]])
    """
    return _augmented(
        logits, labels, weight, source, target, strength, mean_shift, common_shift, covariance, policy, min_count,
        wants_spread=False,
    )[0]  # fmt: skip


def transferable_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    weight: Tensor,
    source: ClassStatistics | None,
    target: ClassStatistics | None,
    strength: float | Tensor,
    *,
    reduction: Literal["mean", "sum", "none"] = "mean",
    mean_shift: bool = True,
    common_shift: bool = True,
    covariance: Covariance = "target",
    policy: Policy = "skip",
    min_count: int = 1,
    label_smoothing: float = 0.0,
    margin: float = 0.0,
) -> Tensor:
    """L_∞, an upper bound of the expected cross-entropy over N(f + λΔμ^y, λΣ_t^y).

        L_∞ = −(1/B) Σ_i log softmax(Z_i)[y_i],    Z as in `transferable_logits`

    Shapes, arguments and gradient as there; `reduction` as in `torch.nn.functional.cross_entropy`.

    `label_smoothing` ε spreads a part of each label over all classes: q_k = (1 − ε)·1[k = y] + ε/C. The expectation of
    that cross-entropy is E log Σ_c exp z̃_c − Σ_k q_k E z̃_k. Its first term is bounded as before, relative to y; the
    others are linear in the copy, so that they are exact and have no variance in them:

        L_∞^ε = (1/B) Σ_i [ log Σ_c exp(Z_i^c) − Σ_k q_k (Z_i^k − ½ λ σ_i^k) ]
              = (1/B) Σ_i [ CE_ε(Z_i, y_i) + (ε/C) Σ_k ½ λ σ_i^k ],    σ_i^k = (w_k − w_y)ᵀ Σ_t^y (w_k − w_y)

    CE_ε(Z, y) alone would be smaller, and no bound. `margin` η takes Z^y − η for Z^y, so that y must win by as much.

    >>> import torch
    >>> from tsadapt.core import FeatureMemory
    >>> head, f, y = torch.nn.Linear(4, 3), torch.randn(8, 4), torch.randint(3, (8,))
    >>> source, target = FeatureMemory(100, 4, 3), FeatureMemory(100, 4, 3)
    >>> source.write(torch.arange(8), f, y)
    >>> target.write(torch.arange(8), f + 1, y)
    >>> loss = transferable_cross_entropy(head(f), y, head.weight, source, target, strength=0.25)
    >>> loss.backward()
    """
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing is {label_smoothing}, expected a number from 0 to 1.")
    z, spread = _augmented(
        logits, labels, weight, source, target, strength, mean_shift, common_shift, covariance, policy, min_count,
        wants_spread=label_smoothing > 0,
    )  # fmt: skip
    if margin:
        z = z - margin * F.one_hot(labels.to(torch.int64), z.shape[1])
    loss = F.cross_entropy(z, labels.to(torch.int64), reduction=reduction, label_smoothing=label_smoothing)
    if spread is None:
        return loss
    linear = label_smoothing * spread.mean(1)
    return loss + (linear if reduction == "none" else linear.mean() if reduction == "mean" else linear.sum())


def _augmented(
    logits: Tensor,
    labels: Tensor,
    weight: Tensor,
    source: ClassStatistics | None,
    target: ClassStatistics | None,
    strength: float | Tensor,
    mean_shift: bool,
    common_shift: bool,
    covariance: Covariance,
    policy: Policy,
    min_count: int,
    wants_spread: bool,
) -> tuple[Tensor, Tensor | None]:
    """Z (B, C) and, where wanted, the part ½λ(w_c − w_y)ᵀΣ^y(w_c − w_y) of it (B, C)."""
    b, c = _check(logits, labels, weight)
    used = _used(source, target, mean_shift, covariance, policy, weight)
    dtype = computing_dtype(logits, weight)
    logits = logits.to(dtype)
    if b == 0 or not used or (not isinstance(strength, Tensor) and strength == 0):
        return logits, None
    with full_precision(logits):
        w = weight.to(dtype)
        # With at least as many samples as classes most classes are present: finding out which costs more than it saves.
        classes, place = (None, labels) if b >= c else torch.unique(labels, return_inverse=True)
        means = {domain: statistics.class_means(classes) for domain, statistics in used.items()}
        enough = enough_rows([count for count, _ in means.values()], policy, min_count, w.device)
        offsets, spread = None, None
        lam = strength
        if isinstance(strength, Tensor):
            if tuple(strength.shape) != (c,):
                raise ValueError(f"strength has shape {tuple(strength.shape)}, expected a number or ({c},).")
            every = strength.detach().to(w)
            lam = (every if classes is None else every.index_select(0, classes))[:, None]  # (P, 1)
        if mean_shift:
            shift = mean_shifts(used["source"], used["target"], means["source"], means["target"], enough, policy)
            if not common_shift:
                shift = shift - _common_shift(used["source"], used["target"], min_count).to(shift)
            scaled = lam.to(shift) * shift if isinstance(lam, Tensor) else lam * shift
            along = scaled.to(w) @ w.T  # (P, C)
            offsets = along - (along.diagonal()[:, None] if classes is None else along.gather(1, classes[:, None]))
        if covariance != "none":
            variances = used[covariance].variances_along(w, classes, means[covariance])
            if enough is not None and policy == "global":
                pooled = quadratic_forms(w, classes, used[covariance].pooled().covariance)
                variances = torch.where(enough[:, None], variances, pooled)
            half = 0.5 * lam
            if offsets is None or isinstance(half, Tensor):
                offsets = half * variances if offsets is None else offsets + half * variances
            else:
                offsets = offsets.add(variances, alpha=half)
            spread = half * variances if wants_spread else None
        assert offsets is not None
        if enough is not None and policy == "skip":
            offsets = torch.where(enough[:, None], offsets, 0.0)
            spread = None if spread is None else torch.where(enough[:, None], spread, 0.0)
        return logits + offsets.index_select(0, place), None if spread is None else spread.index_select(0, place)


def enough_rows(counts: list[Tensor], policy: Policy, min_count: int, device: torch.device) -> Tensor | None:
    """Which classes (P,) have `min_count` rows in every domain used; None if all have or the policy does not ask."""
    if policy == "official" or min(int(count.min()) for count in counts) >= min_count:
        return None
    return (torch.stack([count.to(device) for count in counts]).amin(0) >= min_count).to(device)


def mean_shifts(
    source: ClassStatistics,
    target: ClassStatistics,
    means_s: tuple[Tensor, Tensor],
    means_t: tuple[Tensor, Tensor],
    enough: Tensor | None,
    policy: Policy,
) -> Tensor:
    """Δμ = μ_t − μ_s (P, K) of the classes whose `means` are given; between all rows where the policy wants that."""
    shift = means_t[1] - means_s[1].to(means_t[1].device)
    if enough is None or policy != "global":
        return shift
    overall = target.pooled().mean.to(shift) - source.pooled().mean.to(shift)  # (1, K)
    return torch.where(enough.to(shift.device)[:, None], shift, overall)


def _common_shift(source: ClassStatistics, target: ClassStatistics, min_count: int) -> Tensor:
    """The mean of Δμ (K,) over the classes that have enough rows in both domains; zero if none has."""
    (count_s, mean_s), (count_t, mean_t) = source.class_means(), target.class_means()
    count_s, mean_s = count_s.to(count_t.device), mean_s.to(mean_t)
    both = (torch.minimum(count_s, count_t) >= min_count).to(mean_t)[:, None]
    return ((mean_t - mean_s) * both).sum(0) / both.sum().clamp_min(1)


def _check(logits: Tensor, labels: Tensor, weight: Tensor) -> tuple[int, int]:
    if weight.ndim != 2:
        raise ValueError(f"weight has shape {tuple(weight.shape)}, expected (classes, features).")
    c = weight.shape[0]
    check_matrix("logits", logits, None, c, f"one column for each of the {c} rows of weight")
    check_vector("labels", labels, logits.shape[0])
    check_same_device(logits=logits, labels=labels, weight=weight)
    check_classes("labels", labels, c)
    return logits.shape[0], c


def _used(
    source: ClassStatistics | None,
    target: ClassStatistics | None,
    mean_shift: bool,
    covariance: Covariance,
    policy: Policy,
    weight: Tensor,
) -> dict[str, ClassStatistics]:
    """The statistics that the switches ask for, by domain, checked against the head."""
    if covariance not in ("target", "source", "none"):
        raise ValueError(f"covariance is {covariance!r}, expected 'target', 'source' or 'none'.")
    if policy not in ("skip", "official", "global"):
        raise ValueError(f"policy is {policy!r}, expected 'skip', 'official' or 'global'.")
    used = {}
    for name, statistics in (("source", source), ("target", target)):
        if mean_shift or covariance == name:
            if statistics is None:
                asked = "mean_shift=True" if mean_shift else f"covariance={covariance!r}"
                raise ValueError(f"{name} is None, but {asked} needs it: give a memory or moments of that domain.")
            check_statistics(name, statistics, weight)
            used[name] = statistics
    return used


def check_statistics(name: str, statistics: ClassStatistics, weight: Tensor) -> None:
    """The statistics are of as many classes and features as the head."""
    if statistics.shape != tuple(weight.shape):
        (c, k), (rows, columns) = statistics.shape, weight.shape
        raise ValueError(
            f"{name} holds {c} classes of {k} features, expected {rows} classes of {columns} features: weight is"
            f" ({rows}, {columns})."
        )
