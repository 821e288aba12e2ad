"""TSA: the closed-form bound of the cross-entropy over infinitely many target-like copies of each source feature.

L_∞ = mean log Σ_c exp(z_c − z_y + λ(w_c − w_y)·Δμ^y + ½λ(w_c − w_y)ᵀΣ_t^y(w_c − w_y)),   λ = λ0·t/T

with Δμ^y and Σ_t^y from the shared memories of both domains (`core.transferable` has the mathematics).
"""

from copy import deepcopy
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from tsadapt.core import (
    FeatureMemory,
    RowStatistics,
    augmentation_strength,
    average_weights,
    transferable_cross_entropy,
)
from tsadapt.errors import UserError
from tsadapt.objectives.base import SOURCE_TERMS, ClassStatistics, Context, Head, Outputs, StatisticsRequest
from tsadapt.objectives.source_terms.ce import Smoothing
from tsadapt.settings import setting

__all__ = ["TSA", "SemanticAugmentation", "TowardsTarget"]

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


class TowardsTarget(SemanticAugmentation):
    """What TSA, its sampled form and T²SA have in common: copies by the target's class means and covariances."""

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

    def both(self, i: int, out: Outputs) -> tuple[ClassStatistics, ClassStatistics | RowStatistics]:
        """Source and target statistics of head i."""
        return out.statistics("source", self.estimator, i), out.statistics("target", self.estimator, i)

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
        spread = target.total_variances().to(w)
        off = both.to(w.device)[classes][:, None].repeat(1, len(w)).scatter_(1, classes[:, None], False)
        logged["shift_norm"] = float(shift[both].norm(dim=1).mean())
        logged["class_spread"] = float(spread[both].sqrt().mean())
        if bool(off.any()):
            logged["shift_term"] = float(shift_term[off].abs().mean())
            logged["variance_term"] = float(0.5 * strength * variances[off].mean())
        logged["logit_size"] = float(out.source.logits.float().abs().mean())
        return logged


@SOURCE_TERMS.register("tsa")
class TSA(TowardsTarget):
    """Transferable semantic augmentation, in closed form (--tsa adds mutual information to it).

    Its options beyond the paper are off unless asked for. With any of the last three, the target's statistics are those
    of the memory's rows under labels and weights of the term's own.
    """

    paper = "Li et al., CVPR 2021"
    practice = (
        "It trains on copies of the source's features that are moved to the target's class means and spread like "
        "the target's classes. It assumes that most pseudo-labels of the target are right, and more so as training "
        "goes on, and that a head linear in the features predicts. It helps where a method or mutual information "
        "has begun to align the domains. It hurts where nothing does, because wrong pseudo-labels move features to "
        "wrong classes: add a method or `mi`, or lower `--lambda0`. Options that trust pseudo-labels less: "
        "`--confidence-weights`, `--purity-strength`, `--teacher 0.99`; `--no-common-shift` leaves out the part of the "
        "shift that all classes share, which tells none from another."
    )
    cost = "one pass; variances of all target features; with a teacher, one forward pass more"

    common_shift: bool = setting(
        True, "Keep the part of the shift that all classes share.",
        off="Take off the shift Δμ of each class its mean over the classes.",
    )  # fmt: skip
    purity_strength: bool = setting(
        False, "Multiply λ of each class by the mean confidence of the target rows with its pseudo-label."
    )
    confidence_weights: bool = setting(
        False, "Count target rows in class means and covariances by the confidence of their pseudo-labels."
    )
    teacher: float = setting(
        0.0, "Pseudo-labels from a moving average of the network's weights, with this momentum (0.99, say); 0 is none.",
        at_least=0, at_most=0.99999, shown="none",
    )  # fmt: skip

    pseudo_labels_of_rows: Tensor
    confidence: Tensor
    steps_taught: Tensor

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        rows, classes = context.sizes[1], len(context.classes)
        self.average: nn.Module | None = None
        if self.looks_at_predictions:
            # The label `classes` stands for "not predicted yet"; such a row is as unsure as can be.
            self.register_buffer("pseudo_labels_of_rows", torch.full((rows,), classes))
            self.register_buffer("confidence", torch.full((rows,), 1 / classes))
        if self.teacher:
            self.average = deepcopy(context.network()).requires_grad_(False)
            self.register_buffer("steps_taught", torch.zeros((), dtype=torch.int64))

    @classmethod
    def resolved(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Options that look at single rows need the rows."""
        asked = [name for name in ("purity_strength", "confidence_weights", "teacher") if settings.get(name)]
        if asked and settings.get("estimator", "memory") != "memory":
            raise UserError(f"{asked[0]} needs the rows of the target: leave out estimator {settings['estimator']}.")
        return settings

    @property
    def looks_at_predictions(self) -> bool:
        """Whether the label and the confidence of every target row are kept."""
        return self.own_statistics or self.purity_strength

    @property
    def own_statistics(self) -> bool:
        """Whether the target's rows count otherwise than in the shared memory."""
        return self.confidence_weights or self.teacher > 0

    def statistics(self) -> list[StatisticsRequest]:
        """Means of both domains, and the target's covariance unless it is taken from the rows."""
        spreads = self.covariance == "target" and not self.own_statistics
        return [StatisticsRequest("source", self.estimator), StatisticsRequest("target", self.estimator, spreads)]

    def both(self, i: int, out: Outputs) -> tuple[ClassStatistics, ClassStatistics | RowStatistics]:
        """Source and target statistics of head i, the target's under the term's own labels and weights."""
        source, target = super().both(i, out)
        if not self.own_statistics:
            return source, target
        memory = cast("FeatureMemory", target)
        weights = self.confidence if self.confidence_weights else None
        return source, memory.under(self._labels(memory), weights)

    def forward(self, out: Outputs) -> Tensor:
        """L_∞, summed over the heads; the predictions of the target batch are looked at first."""
        if self.looks_at_predictions and not out.again:
            self._observe(out)
        return super().forward(out)

    def of_head(self, i: int, head: Head, out: Outputs) -> Tensor:
        """L_∞ of one head."""
        strength: float | Tensor = self.strength(out)
        if self.purity_strength:
            strength = strength * self.purity(out)
        return transferable_cross_entropy(
            head.source.logits, out.labels(), head.weight, *self.both(i, out), strength, mean_shift=self.mean_shift,
            common_shift=self.common_shift, covariance=self.covariance, policy=self.policy, min_count=self.min_count,
            label_smoothing=self.label_smoothing,
        )  # fmt: skip

    def purity(self, out: Outputs) -> Tensor:
        """The mean confidence of the target rows with each pseudo-label (C,); no less than a guess has, 1/C."""
        memory = cast("FeatureMemory", out.statistics("target", self.estimator, 0))
        labels = self._labels(memory).to(self.confidence.device)
        total = self.confidence.new_zeros(memory.classes + 1).index_add_(0, labels, self.confidence)[:-1]
        rows = torch.bincount(labels, minlength=memory.classes + 1)[:-1]
        return (total / rows.clamp_min(1)).clamp_min(1 / memory.classes)

    def _labels(self, memory: FeatureMemory) -> Tensor:
        """The labels of the memory's rows: the term's own where it has seen the row, else the memory's."""
        own = self.pseudo_labels_of_rows.to(memory.labels.device)
        known = (own < memory.classes) & (memory.labels < memory.classes)
        return torch.where(known, own, memory.labels)

    @torch.no_grad()
    def _observe(self, out: Outputs) -> None:
        """Keep label and confidence of the target batch, by the network or by its average."""
        _, target = out.both()
        logits = target.logits if self.average is None else self._taught(out)
        confidence, label = logits.float().softmax(1).max(1)
        index = target.index.to(self.confidence.device)
        self.pseudo_labels_of_rows[index] = self.context.pseudo_labels(target.index, label).to(index.device)
        self.confidence[index] = confidence.to(self.confidence)

    def _taught(self, out: Outputs) -> Tensor:
        """The average's logits of the target batch (B, C); it takes in the network once a step, however often asked.

        Its momentum rises to `teacher`, so that the weights at the start are soon forgotten. Running means of batch
        normalisation are averaged like weights, and it predicts by these.
        """
        assert self.average is not None
        assert out.inputs[1] is not None
        step = round(out.progress * self.context.steps)
        if step != int(self.steps_taught):
            self.steps_taught.fill_(step)
            average_weights(self.average, self.context.network(), min(self.teacher, 1 - 1 / (step + 1)))
        logits: Tensor = self.average.eval()(out.inputs[1])[1]
        return logits

    def describe(self, out: Outputs) -> dict[str, float | list[float]]:
        """As of any term towards the target, and the purity of pseudo-labels where it is used."""
        logged = super().describe(out)
        return logged | ({"purity": float(self.purity(out).mean())} if self.purity_strength else {})
