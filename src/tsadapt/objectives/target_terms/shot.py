"""SHOT: information maximisation, and pseudo-labels from class centroids of the whole target.

    L = mean_j H(P_j) − H(P̂) + c·CE(P, ỹ)

Every so many steps all rows seen so far are labelled anew, from their latest features and predictions.
"""

from typing import Any

import torch
from torch import Tensor

from tsadapt.core import PredictionMemory, centroid_labels, mutual_information_loss, pseudo_label_loss
from tsadapt.objectives.base import TARGET_TERMS, Context, Outputs, StatisticsRequest
from tsadapt.objectives.class_prior import PriorTerm
from tsadapt.objectives.target_rows import averaged_logits, few_rows, label_anew
from tsadapt.settings import setting

__all__ = ["SHOT"]


@TARGET_TERMS.register("shot")
class SHOT(PriorTerm):
    """Mutual information, maximised, and pseudo-labels from the class centres of the whole target.

    With several heads the prediction is the average of their probabilities, and nearness the average of their cosines.
    """

    paper = "Liang et al., ICML 2020"
    practice = (
        "It maximises mutual information as `mi` does at weight 1, and adds pseudo-labels from class centres of the "
        "whole target, estimated anew every `--refresh-every` steps. It assumes even classes (through mutual "
        "information) and one cluster for each class. It helps when a good source model meets a clear shift. It "
        "hurts when the target's classes are uneven, or before the network knows the source: there are no "
        "pseudo-labels in the first steps for that reason. It contains `mi`: do not use both. For a gentler start use "
        "`--term-weight shot=0.1`."
    )
    cost = "one pass; labels all target rows now and then"

    pseudo_label_weight: float = setting(0.3, "Weight of the cross-entropy with pseudo-labels.", at_least=0)
    refresh_every: int = setting(
        50, "Steps between two estimates of the pseudo-labels; before the first there are none.", above=0
    )

    labels: Tensor

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        classes = len(context.classes)
        self.memory = PredictionMemory(context.sizes[1], classes, context.processes)
        # The label `classes` stands for "none yet".
        self.register_buffer("labels", torch.full((context.sizes[1],), classes))

    def statistics(self) -> list[StatisticsRequest]:
        """The latest feature of every target row."""
        return [StatisticsRequest("target")]

    def forward(self, out: Outputs) -> Tensor:
        """L of the target batch; its second part is zero until the first estimate."""
        logits, index = averaged_logits(out), out.both()[1].index
        if not out.again:
            self.memory.write(index, logits.detach().softmax(1))
            if round(out.progress * self.context.steps) % self.refresh_every == 0:
                label_anew(out, self.memory, self.labels, centroid_labels)
        # A batch of fewer rows than classes says little of how the classes are spread.
        marginal = self.memory.mean() if few_rows(self.context) else None
        labels = self.labels[index.to(self.labels.device)]
        labelled = pseudo_label_loss(logits, labels, labels < len(self.context.classes))
        return mutual_information_loss(logits, self.shares(), marginal) + self.pseudo_label_weight * labelled

    def describe(self, out: Outputs) -> dict[str, float | list[float]]:
        """The share of target rows that have a pseudo-label."""
        return {"pseudo_labelled": float((self.labels < len(self.context.classes)).float().mean())}
