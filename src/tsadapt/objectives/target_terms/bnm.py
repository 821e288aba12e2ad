"""Batch nuclear-norm maximisation: target predictions that are certain and varied at once."""

from torch import Tensor

from tsadapt.core import nuclear_norm_loss
from tsadapt.objectives.base import TARGET_TERMS, Outputs
from tsadapt.objectives.class_prior import PriorTerm
from tsadapt.objectives.target_rows import averaged_logits
from tsadapt.settings import setting

__all__ = ["BatchNuclearNorm"]


@TARGET_TERMS.register("bnm")
class BatchNuclearNorm(PriorTerm):
    """Batch nuclear-norm maximisation: target predictions that are certain and varied.

    With several heads it is computed from the average of their probabilities.
    """

    paper = "Cui et al., CVPR 2020"
    practice = (
        "It assumes that a batch contains many classes of roughly equal frequency. It helps when rare classes "
        "disappear under `entropy`. It hurts when the target has few of the source's classes, or very uneven ones: "
        "it invents predictions of absent classes. The value grows with the batch: for few classes and large "
        "batches lower `--bnm-weight`."
    )
    cost = "one pass; singular values of a batch's predictions"

    bnm_weight: float = setting(1.0, "Weight of the nuclear norm.", at_least=0)

    def forward(self, out: Outputs) -> Tensor:
        """−λ·‖P_t‖_* / min(B, C); with shares π, of P_t diag(√(C·π))."""
        return self.bnm_weight * nuclear_norm_loss(averaged_logits(out), self.shares())
