"""DANN: features from which a discriminator cannot tell the domain."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from tsadapt.core import domain_loss, reverse_gradient
from tsadapt.models.discriminator import Discriminator
from tsadapt.objectives.base import METHODS, Context, Outputs
from tsadapt.objectives.methods.reversing import Reversing
from tsadapt.settings import setting

__all__ = ["DANN", "Adversarial"]


class Adversarial(Reversing):
    """A method with a discriminator; what goes into it is the subclass's to say.

    `domain_smoothing` s keeps the discriminator from being too sure of itself: it is told that a row is from the source
    with probability 1 − s or s instead of 1 or 0 (environment label smoothing; Zhang et al., ICLR 2023).
    """

    terms: ClassVar[tuple[str, ...]] = ("domain",)

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

    def weights(self, out: Outputs) -> tuple[Tensor | None, Tensor | None]:
        """How much each sample of the two domains counts; None: all alike."""
        return None, None

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """L_d: the discriminator learns to tell the domains, and by the reversed gradient the features not to."""
        source, target = out.both()
        d = self.discriminator(reverse_gradient(self.mapped(out), self.alpha(out)))
        d_s, d_t = d.split([len(source.index), len(target.index)])
        return {"domain": domain_loss(d_s, d_t, *self.weights(out), smoothing=self.domain_smoothing)}

    @torch.no_grad()
    def describe(self, out: Outputs) -> dict[str, float]:
        """The discriminator's accuracy (½: it cannot tell), without dropout, and α."""
        source, target = out.both()
        self.discriminator.eval()
        d_s, d_t = self.discriminator(self.mapped(out)).split([len(source.index), len(target.index)])
        self.discriminator.train()
        right = float(((d_s > 0).float().mean() + (d_t <= 0).float().mean()) / 2)  # both domains count half
        return {"discriminator_accuracy": right, **super().describe(out)}


@METHODS.register("dann")
class DANN(Adversarial):
    """Domain-adversarial training: a discriminator on the features, its gradient reversed.

        L_d = −½ mean log D(f_s) − ½ mean log(1 − D(f_t))

    The domains are normalised apart: normalised together, they keep the difference of their means and variances, by
    which this discriminator tells them with ease, and the features lose their classes in getting rid of it.
    """

    paper = "Ganin et al., JMLR 2016"
    practice = (
        "It makes the features such that a discriminator cannot tell the domains. It assumes that this can be done "
        "without mixing classes, and that the classes have similar shares in both domains. It helps with shifts "
        "that touch all rows alike. It hurts when the target's classes are uneven: equal features of unequal class "
        "shares must put some rows into wrong classes. Nothing ties a target class to the same class of the source. "
        "`discriminator_accuracy` near 1 throughout says that it does not align."
    )
    cost = "one pass; a discriminator"
    separate_bn = True

    def mapped(self, out: Outputs) -> Tensor:
        """The features."""
        source, target = out.both()
        return torch.cat([source.features, target.features])
