"""Cross-entropy of the labelled source."""

from torch import Tensor
from torch.nn import functional as F

from tsadapt.objectives.base import SOURCE_TERMS, Head, Outputs, SourceTerm

__all__ = ["CrossEntropy"]


@SOURCE_TERMS.register("ce")
class CrossEntropy(SourceTerm):
    """Cross-entropy."""

    practice = (
        "It learns the source as it is and assumes nothing of the target. With a method or a target term beside it "
        "it is what most published methods train on; alone it is the baseline that others must beat."
    )

    def of_head(self, i: int, head: Head, out: Outputs) -> Tensor:
        """Cross-entropy of the source logits, in float32."""
        return F.cross_entropy(head.source.logits.float(), out.labels())
