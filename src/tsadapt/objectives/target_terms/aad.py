"""AaD, attracting and dispersing: predictions like those of similar target rows, unlike those of the rest."""

from typing import Any

from torch import Tensor

from tsadapt.core import PredictionMemory, attraction_dispersion_loss, dispersion_strength
from tsadapt.objectives.base import TARGET_TERMS, Context, Outputs, StatisticsRequest
from tsadapt.objectives.class_prior import PriorTerm
from tsadapt.objectives.target_rows import averaged_logits, neighbour_predictions
from tsadapt.settings import setting

__all__ = ["AttractingDispersing"]


@TARGET_TERMS.register("aad")
class AttractingDispersing(PriorTerm):
    """Attracting and dispersing: predictions like those of similar target rows, unlike those of the rest.

    With several heads the prediction is the average of their probabilities, and nearness the average of their cosines.
    """

    paper = "Yang et al., NeurIPS 2022"
    practice = (
        "It assumes, like `atdoc`, that neighbours share a class, but never picks a label, so it forgives early "
        "errors more easily. At the start of a run its second part spreads predictions evenly over the classes, and "
        "then fades. `--dispersion-decay 0` keeps it, which suits even classes and hurts uneven ones. Its values "
        "are larger than those of other terms (up to K): scale it with `--term-weight aad=0.2` if it overrules the "
        "source."
    )
    cost = "one pass; compares the batch with all target rows"

    neighbours: int = setting(5, "Nearest target rows that each prediction is compared with (K).", above=0)
    dispersion: float = setting(1.0, "How much predictions of a batch are driven apart at the start.", at_least=0)
    dispersion_decay: float = setting(
        5.0, "How fast that falls: (1 + 10·t/T)^-decay; 0 keeps it, which balances the classes.", at_least=0
    )

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        self.memory = PredictionMemory(context.sizes[1], len(context.classes), context.processes)

    def statistics(self) -> list[StatisticsRequest]:
        """The latest feature of every target row."""
        return [StatisticsRequest("target")]

    def strength(self, out: Outputs) -> float:
        """The weight of dispersion now."""
        return dispersion_strength(out.progress, self.dispersion, self.dispersion_decay)

    def forward(self, out: Outputs) -> Tensor:
        """Dispersion less attraction, of the target batch."""
        logits, index = averaged_logits(out), out.both()[1].index
        if not out.again:
            self.memory.write(index, logits.detach().softmax(1))
        near, found = neighbour_predictions(out, self.memory, self.neighbours)
        return attraction_dispersion_loss(
            logits, near, found, self.strength(out), index.to(logits.device), self.shares()
        )

    def describe(self, out: Outputs) -> dict[str, float | list[float]]:
        """The weight of dispersion."""
        return {"dispersion": self.strength(out)}
