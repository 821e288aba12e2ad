"""Cross-entropy of the labelled source."""

from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.precision import computing_dtype
from tsadapt.objectives.base import SOURCE_TERMS, Head, Outputs, SourceTerm
from tsadapt.settings import setting

__all__ = ["CrossEntropy", "Smoothing"]


class Smoothing(SourceTerm):
    """A source term whose labels can be smoothed."""

    label_smoothing: float = setting(
        0.0, "Share of each source label that is spread over all classes (0.1 is usual).", at_least=0, at_most=1
    )


@SOURCE_TERMS.register("ce")
class CrossEntropy(Smoothing):
    """Cross-entropy."""

    practice = (
        "It learns the source as it is and assumes nothing of the target. With a method or a target term beside it "
        "it is what most published methods train on; alone it is the baseline that others must beat. "
        "`--label-smoothing 0.1` keeps the network from being certain of source rows alone, which leaves room for "
        "target terms; probabilities become less certain."
    )

    def of_head(self, i: int, head: Head, out: Outputs) -> Tensor:
        """Cross-entropy of the source logits, in float32 or wider."""
        logits = head.source.logits
        return F.cross_entropy(logits.to(computing_dtype(logits)), out.labels(), label_smoothing=self.label_smoothing)
