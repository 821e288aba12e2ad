"""ATDOC: pseudo-labels from the neighbours of a target row in the memory, or from its nearest class centroid.

    by neighbours    γ·(t/T)·Σ_j w_j CE(P_j, ỹ_j)/Σ_j w_j,  ỹ_j and w_j = argmax and max of the mean q of 5 nearest rows
    by centroids     γ·(t/T)·(1/B) Σ_j CE(P_j, ỹ_j),        ỹ_j = the class whose mean in the memory is nearest

Nearness is the cosine of features, and q = p²/Σ_batch p² when the row was last seen.
"""

from typing import Any, Literal, cast

import torch
from torch import Tensor

from tsadapt.core import (
    FeatureMemory,
    PredictionMemory,
    balanced_predictions,
    nearest_centroid,
    neighbour_labels,
    pseudo_label_loss,
)
from tsadapt.objectives.base import TARGET_TERMS, Context, Outputs, StatisticsRequest
from tsadapt.objectives.class_prior import PriorTerm
from tsadapt.objectives.target_rows import averaged_logits, neighbour_predictions
from tsadapt.settings import setting

__all__ = ["ATDOC"]


@TARGET_TERMS.register("atdoc")
class ATDOC(PriorTerm):
    """Cross-entropy with pseudo-labels from similar target rows, or from the nearest class centre.

    With several heads the prediction is the average of their probabilities. By neighbours, cosines are averaged over
    the heads; by centroids, each head's features give a label of their own, and their losses are averaged.
    """

    paper = "Liang et al., CVPR 2021"
    practice = (
        "It gives each target row the label that its nearest target rows predict, or that of the nearest class "
        "centre (`--pseudo-labels centroids`), and grows from nothing over the run. It assumes that neighbours in "
        "feature space share a class. It helps when single predictions are noisy and clusters are clean. It hurts "
        "when features mix the classes: neighbours then confirm each other's errors. `balanced` soft labels assume "
        "even classes, or those of `--class-prior`; `--soft-labels plain` counts frequent classes as they come. "
        "Centres are cheaper and suit classes of one cluster each."
    )
    cost = "one pass; compares the batch with all target rows"

    atdoc_weight: float | None = setting(
        None, "Weight of ATDOC at the end of training (γ).", at_least=0, shown="0.2; 0.1 by centroids"
    )
    pseudo_labels: Literal["neighbours", "centroids"] = setting(
        "neighbours", "Pseudo-labels from the nearest rows of the target, or from the nearest class centre."
    )
    neighbours: int = setting(5, "Nearest target rows that each prediction is compared with (K).", above=0)
    soft_labels: Literal["balanced", "plain"] = setting(
        "balanced",
        "What neighbours say: predictions squared and balanced over the classes (by --class-prior), or plain.",
    )

    memory: PredictionMemory | None

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        remembers = self.pseudo_labels == "neighbours"
        self.memory = PredictionMemory(context.sizes[1], len(context.classes), context.processes) if remembers else None

    def statistics(self) -> list[StatisticsRequest]:
        """The latest feature of every target row."""
        return [StatisticsRequest("target")]

    def forward(self, out: Outputs) -> Tensor:
        """The cross-entropy of the target batch with its pseudo-labels, times γ·t/T."""
        logits = averaged_logits(out)
        if self.memory is None:
            weight = 0.1 if self.atdoc_weight is None else self.atdoc_weight
            losses = [pseudo_label_loss(logits, *self._by_centroids(i, out)) for i in range(len(out.heads))]
            return weight * out.progress * torch.stack(losses).mean()
        balanced = self.soft_labels == "balanced"
        q = balanced_predictions(logits, self.shares()) if balanced else logits.detach().softmax(1)
        if not out.again:
            self.memory.write(out.both()[1].index, q)
        label, certainty = neighbour_labels(*neighbour_predictions(out, self.memory, self.neighbours))
        weight = 0.2 if self.atdoc_weight is None else self.atdoc_weight
        return weight * out.progress * pseudo_label_loss(logits, label, certainty)

    @staticmethod
    def _by_centroids(i: int, out: Outputs) -> tuple[Tensor, Tensor]:
        """Labels by head i's class means, and weights that are all one, or zero as long as there is no class mean."""
        view = out.heads[i].target
        assert view is not None
        count, mean = cast("FeatureMemory", out.statistics("target", "memory", i)).class_means()
        label = nearest_centroid(view.features.detach(), mean.to(view.features), count > 0)
        return label, (count > 0).any().to(view.features).expand(len(label))
