"""JADA: two classifiers that disagree where the target is far from the source, and a domain discriminator."""

from torch import Tensor
from torch.nn import functional as F

from tsadapt.core import reverse_at
from tsadapt.objectives.base import METHODS, Outputs
from tsadapt.objectives.methods.dann import DANN

__all__ = ["JADA"]


@METHODS.register("jada")
class JADA(DANN):
    """Joint adversarial adaptation: DANN's discriminator, and two heads whose disagreement on the target is a game.

        L_dis = −mean |softmax C_1(GRL(f_t)) − softmax C_2(GRL(f_t))|,   over B·C entries

    The heads raise the disagreement, the features lower it, in one pass through the network.
    """

    paper = "Li et al., ACM MM 2019"
    terms = ("domain", "disagreement")
    heads = 2

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """DANN's term and the disagreement of the heads."""
        p_1, p_2 = (F.softmax(head.target.logits, dim=1) for head in out.heads if head.target is not None)
        disagreement = reverse_at(-(p_1 - p_2).abs().mean(), out.extracted, self.alpha(out))
        return {**super().losses(out), "disagreement": disagreement}
