"""NWD (DALN): the classifier itself as critic, by the nuclear norm of its predictions."""

from torch import Tensor

from tsadapt.core import nuclear_discrepancy, reverse_at
from tsadapt.objectives.base import METHODS, Outputs
from tsadapt.objectives.methods.reversing import Reversing

__all__ = ["NWD"]


@METHODS.register("nwd")
class NWD(Reversing):
    """Adversarial training without a discriminator (DALN): the head itself tells the domains, by the nuclear norm.

        L = −(‖P_s‖_*/B_s − ‖P_t‖_*/B_t),   P = softmax(head(GRL(f)))

    The head makes its predictions sure and varied on the source and the opposite on the target; the features, by the
    reversed gradient, work against it. One pass through the network serves this and all other terms. The domains are
    forwarded together, as in DALN's code.
    """

    paper = "Chen et al., CVPR 2022"
    terms = ("nuclear",)

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """−NWD, its gradient reversed at the features."""
        source, target = out.both()
        discrepancy = nuclear_discrepancy(source.logits, target.logits)
        return {"nuclear": reverse_at(-discrepancy, out.extracted, self.alpha(out))}
