"""The bound of TSA anchored at target rows: copies of each of them, spread by the covariance of its pseudo-class.

    γ·1[t/T > t0]·mean_j CE(W f_j + b + ½λV^ỹ, ỹ),   V^y_c = (w_c − w_y)ᵀ Σ_t^y (w_c − w_y),   y = ỹ_j

The derivation is the paper's: for copies f̃ ~ N(f_j, λΣ_t^ỹ) of a target row with label ỹ, this is the closed-form bound
of their expected cross-entropy. There is no shift, since the copies are where the target is already; and Σ_t^y is the
covariance of the rows that have the pseudo-label y, in the shared memory of the target.
"""

from typing import Any, Literal, cast

import torch
from torch import Tensor

from tsadapt.core import (
    FeatureMemory,
    PredictionMemory,
    balanced_predictions,
    centroid_labels,
    neighbour_labels,
    product_labels,
    transferable_cross_entropy,
)
from tsadapt.objectives.base import TARGET_TERMS, Context, Head, Outputs, StatisticsRequest
from tsadapt.objectives.class_prior import PriorTerm
from tsadapt.objectives.target_rows import averaged_logits, label_anew, neighbour_predictions
from tsadapt.settings import setting

__all__ = ["Anchored"]


@TARGET_TERMS.register("anchored")
class Anchored(PriorTerm):
    """TSA's bound around target rows: their pseudo-labels must hold for copies spread like the target's classes.

    With several heads the prediction is the average of their probabilities, nearness the average of their cosines, and
    the loss the average of theirs, each with its own features and weights.
    """

    paper = "ours, after Li et al., CVPR 2021"
    practice = (
        "It assumes that target rows of a class lie together, so that the nearest class centre (or the nearest rows) "
        "corrects single predictions, and that a class is spread alike around all of its rows. It helps once most "
        "predictions are right, beside `mi` or a method. It hurts where a class has several clusters or centres are "
        "mixed: the copies then make wrong labels hold in a wider place. A later `--anchor-start` is safer, "
        "`--anchor-labels product` follows the network more, and `neighbours` suits classes that are no round clouds."
    )
    cost = "one pass; variances of all target features, and new labels for all of them every 10 steps"
    linear = True

    anchor_weight: float = setting(0.1, "Weight of the bound around target rows (γ).", at_least=0)
    anchor_strength: float = setting(1.0, "How widely copies of a target row are spread (λ).", at_least=0)
    anchor_start: float = setting(0.3, "Share of the steps before it starts (t0).", at_least=0, at_most=1)
    anchor_labels: Literal["centroids", "neighbours", "product"] = setting(
        "centroids",
        "Its pseudo-labels: the nearest class centre, the vote of the nearest target rows, or prediction × centre.",
    )
    anchor_refresh: int = setting(10, "Steps between two estimates of its pseudo-labels from all target rows.", above=0)
    neighbours: int = setting(5, "Nearest target rows that each prediction is compared with (K).", above=0)

    labels: Tensor

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        rows, classes = context.sizes[1], len(context.classes)
        self.memory = PredictionMemory(rows, classes, context.processes)
        # The label `classes` stands for "none yet".
        self.register_buffer("labels", torch.full((rows,), classes))

    def statistics(self) -> list[StatisticsRequest]:
        """The latest feature of every target row, whose variances it takes by labels of its own."""
        return [StatisticsRequest("target")]

    def forward(self, out: Outputs) -> Tensor:
        """γ times the bound of the target batch; zero before it starts, when predictions are remembered already."""
        logits, index = averaged_logits(out), out.both()[1].index
        by_vote = self.anchor_labels == "neighbours"
        if not out.again:
            q = balanced_predictions(logits, self.shares()) if by_vote else logits.detach().softmax(1)
            self.memory.write(index, q)
        if out.progress <= self.anchor_start:
            return 0.0 * logits.sum()
        classes = len(self.context.classes)
        weight = self._vote(out) if by_vote else self._refresh(out)
        labels = self.labels[index.to(self.labels.device)].to(logits.device)
        weight = weight.to(logits) * (labels < classes)
        each = [self._bound(i, head, labels.clamp_max(classes - 1), out) for i, head in enumerate(out.heads)]
        mean = (weight * torch.stack(each).mean(0)).sum() / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)
        return self.anchor_weight * mean

    def _bound(self, i: int, head: Head, labels: Tensor, out: Outputs) -> Tensor:
        """The bound of every row of the batch (B,), by one head."""
        assert head.target is not None
        memory = cast("FeatureMemory", out.statistics("target", "memory", i))
        written = memory.labels < memory.classes
        own = torch.where(written, self.labels.to(written.device), memory.classes)
        return transferable_cross_entropy(
            head.target.logits, labels, head.weight, None, memory.under(own),
            self.anchor_strength, reduction="none", mean_shift=False,
        )  # fmt: skip

    def _refresh(self, out: Outputs) -> Tensor:
        """Label all rows seen so far anew, every so many steps, and when a row of the batch has no label; weights (1,).

        All labels count alike.
        """
        at, index = round(out.progress * self.context.steps), out.both()[1].index
        new = bool((self.labels[index.to(self.labels.device)] == len(self.context.classes)).any())
        if not out.again and (new or at % self.anchor_refresh == 0):
            product = self.anchor_labels == "product"
            label_anew(out, self.memory, self.labels, product_labels if product else centroid_labels)
        return torch.ones(1)

    def _vote(self, out: Outputs) -> Tensor:
        """Label the rows of the batch by their neighbours; how sure these are, as ATDOC's weights (B,).

        A vote of all rows for all rows would take n² products, so that each row is asked when it comes.
        """
        label, certainty = neighbour_labels(*neighbour_predictions(out, self.memory, self.neighbours))
        index = out.both()[1].index.to(self.labels.device)
        voted = (certainty > 0).to(index.device)
        if not out.again:
            self.labels[index[voted]] = label.to(index.device)[voted]
        return certainty

    def describe(self, out: Outputs) -> dict[str, float | list[float]]:
        """The share of target rows that have a pseudo-label of this term."""
        return {"anchored_rows": float((self.labels < len(self.context.classes)).float().mean())}
