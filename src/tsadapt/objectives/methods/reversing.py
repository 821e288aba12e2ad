"""What all methods have that reverse a gradient: how strongly, over the run."""

from typing import Literal

from tsadapt.core import reversal_coefficient
from tsadapt.objectives.base import Method, Outputs
from tsadapt.settings import setting

__all__ = ["Reversing"]


class Reversing(Method):
    """A method that the features work against: its gradient reaches them times −α."""

    reversal: Literal["progress", "iteration"] = setting(
        "progress", "Ramp up the reversed gradient over the run, or over 10,000 steps as in CDAN's code."
    )

    def alpha(self, out: Outputs) -> float:
        """α of the reversed gradient, by progress or by iteration."""
        gain = 10.0 if self.reversal == "progress" else 10.0 * self.context.steps / 10_000
        return reversal_coefficient(out.progress, gain)

    def describe(self, out: Outputs) -> dict[str, float]:
        """α."""
        return {"alpha": self.alpha(out)}
