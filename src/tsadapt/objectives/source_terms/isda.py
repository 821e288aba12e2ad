"""ISDA: copies of each source feature spread by the source's own class covariance; no shift, and no target."""

from torch import Tensor

from tsadapt.core import transferable_cross_entropy
from tsadapt.objectives.base import SOURCE_TERMS, Head, Outputs, StatisticsRequest
from tsadapt.objectives.source_terms.tsa import SemanticAugmentation

__all__ = ["ISDA"]


@SOURCE_TERMS.register("isda")
class ISDA(SemanticAugmentation):
    """Implicit semantic augmentation by the source's class covariance."""

    paper = "Wang et al., NeurIPS 2019"
    practice = (
        "It assumes that a class varies in the target as it does in the source. It helps against overfitting where "
        "labelled rows are few. It knows nothing of the target, so it cannot close a shift: it is the control that "
        "tells what TSA's target statistics are worth."
    )
    cost = "one pass; variances of all source features"

    def statistics(self) -> list[StatisticsRequest]:
        """The source's covariance."""
        return [StatisticsRequest("source", self.estimator, covariance=True)]

    def of_head(self, i: int, head: Head, out: Outputs) -> Tensor:
        """The bound of one head, without a shift."""
        return transferable_cross_entropy(
            head.source.logits, out.labels(), head.weight, out.statistics("source", self.estimator, i), None,
            self.strength(out), mean_shift=False, covariance="source", policy=self.policy, min_count=self.min_count,
            label_smoothing=self.label_smoothing,
        )  # fmt: skip
