"""TSA: the closed-form bound of the cross-entropy over infinitely many target-like copies of each source feature.

L_∞ = mean log Σ_c exp(z_c − z_y + λ(w_c − w_y)·Δμ^y + ½λ(w_c − w_y)ᵀΣ_t^y(w_c − w_y)),   λ = λ0·t/T

with Δμ^y and Σ_t^y from the shared memories of both domains (`core.transferable` has the mathematics).
"""

from typing import Literal

import torch
from torch import Tensor

from tsadapt.core import IterativeMoments, augmentation_strength, transferable_cross_entropy
from tsadapt.objectives.base import SOURCE_TERMS, ClassStatistics, Head, Outputs, StatisticsRequest
from tsadapt.objectives.source_terms.ce import Smoothing
from tsadapt.settings import setting

__all__ = ["TSA", "SemanticAugmentation"]

MOST_CLASSES = 1000
"""Classes up to which the terms of all of them are logged: a table of C × C."""


class SemanticAugmentation(Smoothing):
    """What TSA, ISDA and the sampled form have in common: λ = λ0·t/T, and where class statistics come from."""

    linear = True

    lambda0: float = setting(0.25, "Strength of the augmentation at the end of training (λ0).", at_least=0)
    estimator: Literal["memory", "iterative"] = setting(
        "memory", "Class statistics from a memory of the latest features, or accumulated batch by batch."
    )
    policy: Literal["skip", "official", "global"] = setting(
        "skip",
        "A class with too few pseudo-labels: skip (cross-entropy), official (as published), global (all classes).",
    )
    min_count: int = setting(1, "Pseudo-labels below which a class counts as having too few.", above=0)

    def strength(self, out: Outputs) -> float:
        """λ."""
        return augmentation_strength(out.progress, self.lambda0)

    def describe(self, out: Outputs) -> dict[str, float | list[float]]:
        """λ."""
        return {"lambda": self.strength(out)}


@SOURCE_TERMS.register("tsa")
class TSA(SemanticAugmentation):
    """Transferable semantic augmentation, in closed form (--tsa adds mutual information to it)."""

    paper = "Li et al., CVPR 2021"
    practice = (
        "It trains on copies of the source's features that are moved to the target's class means and spread like "
        "the target's classes. It assumes that most pseudo-labels of the target are right, and more so as training "
        "goes on, and that a head linear in the features predicts. It helps where a method or mutual information "
        "has begun to align the domains. It hurts where nothing does, because wrong pseudo-labels move features to "
        "wrong classes: add a method or `mi`, or lower `--lambda0`."
    )
    cost = "one pass; variances of all target features"
    needs_target = True

    mean_shift: bool = setting(
        True, "Move each class by the difference of the domains' class means.", off="Do not shift the class means (Δμ)."
    )
    covariance: Literal["target", "none"] = setting(
        "target", "Spread the copies by the target's class covariance (Σ).", switches={"no_covariance": "none"}
    )

    def statistics(self) -> list[StatisticsRequest]:
        """Means of both domains, and the target's covariance."""
        return [
            StatisticsRequest("source", self.estimator),
            StatisticsRequest("target", self.estimator, covariance=self.covariance == "target"),
        ]

    def both(self, i: int, out: Outputs) -> tuple[ClassStatistics, ClassStatistics]:
        """Source and target statistics of head i."""
        return out.statistics("source", self.estimator, i), out.statistics("target", self.estimator, i)

    def of_head(self, i: int, head: Head, out: Outputs) -> Tensor:
        """L_∞ of one head."""
        return transferable_cross_entropy(
            head.source.logits, out.labels(), head.weight, *self.both(i, out), self.strength(out),
            mean_shift=self.mean_shift, covariance=self.covariance, policy=self.policy, min_count=self.min_count,
            label_smoothing=self.label_smoothing,
        )  # fmt: skip

    @torch.no_grad()
    def describe(self, out: Outputs) -> dict[str, float | list[float]]:
        """λ, pseudo-label shares, classes without, ‖Δμ‖ beside the spread, shift and variance terms beside logits.

        Of more than `MOST_CLASSES` classes, shares are left out, and the terms are of the classes in the batch.
        """
        strength = self.strength(out)
        source, target = self.both(0, out)
        (count_s, mean_s), (count_t, mean_t) = source.class_means(), target.class_means()
        share = count_t / count_t.sum().clamp_min(1)
        both = (count_s > 0) & (count_t > 0)
        logged: dict[str, float | list[float]] = {
            "lambda": strength,
            "pseudo_label_share": [round(v, 4) for v in share.tolist()],
            "classes_without_pseudo_labels": int((count_t == 0).sum()),
        }
        if many := len(share) > MOST_CLASSES:
            del logged["pseudo_label_share"]
        if not bool(both.any()):
            return logged
        w = out.heads[0].weight.float()
        shift = (mean_t - mean_s).to(w)
        classes = torch.unique(out.labels()) if many else torch.arange(len(w), device=w.device)
        variances = target.variances_along(w, classes if many else None)
        along = shift[classes] @ w.T  # (P, C)
        shift_term = strength * (along - along.gather(1, classes[:, None]))
        # The trace of a class's covariance, from the variances along the axes.
        spread = _total_variance(target).to(w)
        off = both.to(w.device)[classes][:, None].repeat(1, len(w)).scatter_(1, classes[:, None], False)
        logged["shift_norm"] = float(shift[both].norm(dim=1).mean())
        logged["class_spread"] = float(spread[both].sqrt().mean())
        if bool(off.any()):
            logged["shift_term"] = float(shift_term[off].abs().mean())
            logged["variance_term"] = float(0.5 * strength * variances[off].mean())
        logged["logit_size"] = float(out.source.logits.float().abs().mean())
        return logged


def _total_variance(statistics: ClassStatistics) -> Tensor:
    """The trace of each class's covariance: (C,)."""
    if isinstance(statistics, IterativeMoments):
        return statistics.covariance.diagonal(dim1=1, dim2=2).sum(1)
    count, mean = statistics.class_means()
    squares = statistics.features.double().square().sum(1)
    total = torch.zeros_like(statistics.count, dtype=torch.float64).index_add_(0, statistics.labels, squares)[:-1]
    return (total / count.clamp_min(1) - mean.square().sum(1)).clamp_min(0)
