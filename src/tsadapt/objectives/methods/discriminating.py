"""What all methods have that train a discriminator of the domains."""

from typing import Any

import torch
from torch import Tensor

from tsadapt.models.discriminator import Discriminator
from tsadapt.objectives.base import Context, Method, Outputs
from tsadapt.settings import setting

__all__ = ["Discriminating"]


class Discriminating(Method):
    """A method with a discriminator; what goes into it is the subclass's to say.

    `domain_smoothing` s keeps the discriminator from being too sure of itself: it is told that a row is from the source
    with probability 1 − s or s instead of 1 or 0 (environment label smoothing; Zhang et al., ICLR 2023).
    """

    domain_smoothing: float = setting(
        0.0, "Label smoothing (s) of the discriminator: domains 1 − s and s, not 1 and 0.", at_least=0, at_most=0.5
    )

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        self.discriminator = Discriminator(self.inputs(context), context.discriminator_width)

    def inputs(self, context: Context) -> int:
        """How many values the discriminator takes."""
        return context.dim

    def mapped(self, out: Outputs) -> Tensor:
        """What the discriminator looks at, (B_s + B_t, inputs), the source's rows first."""
        raise NotImplementedError(f"{type(self).__name__} maps nothing")

    @torch.no_grad()
    def describe(self, out: Outputs) -> dict[str, float]:
        """The discriminator's accuracy (½: it cannot tell), without dropout."""
        source, target = out.both()
        self.discriminator.eval()
        d_s, d_t = self.discriminator(self.mapped(out)).split([len(source.index), len(target.index)])
        self.discriminator.train()
        right = float(((d_s > 0).float().mean() + (d_t <= 0).float().mean()) / 2)  # both domains count half
        return {"discriminator_accuracy": right}
