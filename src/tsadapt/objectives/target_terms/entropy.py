"""Entropy minimisation: certain target predictions, and nothing that keeps the classes apart."""

from torch import Tensor

from tsadapt.core import conditional_entropy
from tsadapt.objectives.base import TARGET_TERMS, Outputs, TargetTerm
from tsadapt.objectives.target_rows import averaged_logits
from tsadapt.settings import setting

__all__ = ["EntropyMinimisation"]


@TARGET_TERMS.register("entropy")
class EntropyMinimisation(TargetTerm):
    """Entropy minimisation: certain target predictions, and nothing that spreads them over the classes.

    With several heads it is computed from the average of their probabilities.
    """

    paper = "Grandvalet and Bengio, NeurIPS 2004"
    practice = (
        "It assumes that classes are separated by gaps in the target, so that a boundary can move out of the data. "
        "It helps as a light addition to a method that aligns the domains. It hurts where the source model is poor: "
        "nothing keeps it from putting all rows into a few classes, so watch the predicted shares and keep "
        "`--entropy-weight` small."
    )

    entropy_weight: float = setting(0.1, "Weight of the target's entropy.", at_least=0)

    def forward(self, out: Outputs) -> Tensor:
        """The mean entropy of the target batch, times its weight."""
        return self.entropy_weight * conditional_entropy(averaged_logits(out))
