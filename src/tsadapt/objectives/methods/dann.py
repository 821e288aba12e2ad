"""DANN: features from which a discriminator cannot tell the domain."""

from typing import ClassVar

import torch
from torch import Tensor

from tsadapt.core import domain_loss, reverse_gradient
from tsadapt.objectives.base import METHODS, Outputs
from tsadapt.objectives.methods.discriminating import Discriminating
from tsadapt.objectives.methods.reversing import Reversing

__all__ = ["DANN", "Adversarial"]


class Adversarial(Reversing, Discriminating):
    """A method whose features work against its discriminator."""

    terms: ClassVar[tuple[str, ...]] = ("domain",)

    def weights(self, out: Outputs) -> tuple[Tensor | None, Tensor | None]:
        """How much each sample of the two domains counts; None: all alike."""
        return None, None

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """L_d: the discriminator learns to tell the domains, and by the reversed gradient the features not to."""
        source, target = out.both()
        d = self.discriminator(reverse_gradient(self.mapped(out), self.alpha(out)))
        d_s, d_t = d.split([len(source.index), len(target.index)])
        return {"domain": domain_loss(d_s, d_t, *self.weights(out), smoothing=self.domain_smoothing)}

    def describe(self, out: Outputs) -> dict[str, float]:
        """The discriminator's accuracy and α."""
        return {**Discriminating.describe(self, out), **Reversing.describe(self, out)}


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
