"""SymNets: a classifier of each domain, whose 2C outputs together tell the domains and their classes."""

from torch import Tensor
from torch.nn import functional as F

from tsadapt.core import domain_loss, half_confusion_loss, half_logit, joint_entropy, reversal_coefficient
from tsadapt.objectives.base import METHODS, Head, Outputs, View
from tsadapt.objectives.methods.two_halves import TwoHalves

__all__ = ["SymNets"]


@METHODS.register("symnets")
class SymNets(TwoHalves):
    """Domain-symmetric networks: a classifier for each domain, together a discriminator that knows the classes.

    With p = softmax over the 2C outputs of both, P_s and P_t the probabilities of the halves, and q^c = p_c + p_{C+c}:

        heads       source term of each half − mean_s log P_s − mean_t log P_t
        features    ½ source term of each half + ½ mean_s (−log P_s − log P_t)
                    + λ [½ mean_t (−log P_s − log P_t) + mean_t H(q)],      λ = 2/(1 + exp(−10·t/T)) − 1

    Both are minimised in one backward pass, each by its own side alone. The first line of the features is −½ mean log
    p_y − ½ mean log p_{C+y}, since −log p_y = −log P_s + cross-entropy of the source's half: so any source term takes
    the cross-entropy's place, TSA for both halves. The domains are forwarded one by one, as in the published code.
    """

    paper = "Zhang et al., CVPR 2019"
    terms = ("domain", "confusion", "joint_entropy")
    separate_bn = True
    source_pull = 0.5
    cost = "one pass"
    practice = """It assumes that the rows of a class lie near each other in both domains, and makes the two halves
    alike class by class, where a discriminator of features knows no classes. It needs no network beside a second linear
    head. It makes target predictions sure, more and more as training goes on, so it helps where most of them are right
    at first and confirms those that are wrong. It hurts where the target lacks classes of the source, since both halves
    are trained on all of them."""

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """The heads' term, on features as constants; the features' terms, by heads as constants."""
        source, target = out.both()
        strength = self.strength(out)
        d_s, d_t = (half_logit(*self._halves(out, view, heads=True)) for view in (source, target))
        on_source, on_target = (self._halves(out, view, heads=False) for view in (source, target))
        confusion = half_confusion_loss(half_logit(*on_source)) + strength * half_confusion_loss(half_logit(*on_target))
        return {
            "domain": 2 * domain_loss(d_s, d_t),
            "confusion": confusion,
            "joint_entropy": strength * joint_entropy(*on_target),
        }

    def strength(self, out: Outputs) -> float:
        """λ."""
        return reversal_coefficient(out.progress)

    def describe(self, out: Outputs) -> dict[str, float]:
        """λ, by the name that such a schedule has elsewhere."""
        return {"alpha": self.strength(out)}

    @staticmethod
    def _halves(out: Outputs, view: View, heads: bool) -> tuple[Tensor, Tensor]:
        """Logits of the source's and the target's half (B, C), with a gradient for the heads, or for the features."""

        def logits(head: Head) -> Tensor:
            f, w, b = view.features, head.weight, head.bias
            if heads:
                return F.linear(f.detach(), w, b)
            return F.linear(f, w.detach(), None if b is None else b.detach())

        target_half, source_half = out.heads
        return logits(source_half), logits(target_half)
