"""Minimum class confusion: target predictions that do not hesitate between two classes."""

from torch import Tensor

from tsadapt.core import class_confusion_loss
from tsadapt.objectives.base import TARGET_TERMS, Outputs
from tsadapt.objectives.class_prior import PriorTerm
from tsadapt.objectives.target_rows import averaged_logits
from tsadapt.settings import setting

__all__ = ["MinimumClassConfusion"]


@TARGET_TERMS.register("mcc")
class MinimumClassConfusion(PriorTerm):
    """Minimum class confusion: target predictions that do not hesitate between two classes.

    With several heads it is computed from the average of their probabilities.
    """

    paper = "Jin et al., ECCV 2020"
    practice = (
        "It assumes that errors are hesitations between similar classes. It needs no memory and no second domain, "
        "and is a good first choice where classes resemble each other. A class that no row of the batch predicts "
        "counts as confused, so it too favours varied batches; with many more classes than rows its signal is weak. "
        "`--temperature` softens predictions first: raise it (3) if the network is overconfident."
    )

    mcc_weight: float = setting(1.0, "Weight of class confusion.", at_least=0)
    temperature: float = setting(2.5, "Divides the logits in class confusion: larger is softer.", above=0)

    def forward(self, out: Outputs) -> Tensor:
        """Class confusion of the target batch, times its weight."""
        return self.mcc_weight * class_confusion_loss(averaged_logits(out), self.temperature, self.shares())
