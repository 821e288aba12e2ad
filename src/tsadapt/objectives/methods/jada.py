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
    practice = (
        "It joins DANN to two classifiers that disagree where target rows lie near a boundary, and moves those rows "
        "to where they agree. It assumes that the source is learned well and that a region where two classifiers "
        "disagree is one that the source does not support. It helps where DANN aligns the domains and leaves rows "
        "between classes. It hurts, like DANN, with uneven classes in the target, and the disagreement, a mean over "
        "the classes, weakens with their number: raise it with `--term-weight disagreement=…`."
    )
    cost = "one pass; a discriminator and two heads"
    terms = ("domain", "disagreement")
    heads = 2

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """DANN's term and the disagreement of the heads."""
        p_1, p_2 = (F.softmax(head.target.logits, dim=1) for head in out.heads if head.target is not None)
        disagreement = reverse_at(-(p_1 - p_2).abs().mean(), out.extracted, self.alpha(out))
        return {**super().losses(out), "disagreement": disagreement}
