"""JADA: two classifiers that disagree where the target is far from the source, and a domain discriminator."""

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core import reverse_gradient
from tsadapt.objectives.base import METHODS, Outputs
from tsadapt.objectives.methods.dann import DANN

__all__ = ["JADA"]


@METHODS.register("jada")
class JADA(DANN):
    """Joint adversarial adaptation: DANN's discriminator, and two heads whose disagreement on the target is a game.

        L_dis = −mean |softmax C_1(GRL(f_t)) − softmax C_2(GRL(f_t))|,   over B·C entries

    The heads raise the disagreement, the features lower it, all in one backward pass.
    """

    paper = "Li et al., ACM MM 2019"
    terms = ("domain", "disagreement")
    heads = 2

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """DANN's term and the disagreement of the heads."""
        source, target = out.both()
        reversed_t = reverse_gradient(target.features, self.alpha(out))
        # Both domains go through the heads, so that their batch normalisation sees what it sees elsewhere.
        logits = out.classify(torch.cat([source.features.detach(), reversed_t]))
        p_1, p_2 = (F.softmax(z[len(source.index) :].float(), dim=1) for z in logits)
        return {**super().losses(out), "disagreement": -(p_1 - p_2).abs().mean()}
