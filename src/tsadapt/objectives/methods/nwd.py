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
    practice = (
        "It assumes that a classifier that is sure and varied on the source and not on the target betrays the "
        "shift. The classifier is its own critic, so there is no discriminator to tune. It helps with balanced "
        "classes and batches of several rows per class. It hurts when the classes of the target are uneven, since "
        "it asks for as much variety there as on the source, and batches with far fewer rows than classes tell it "
        "little."
    )
    cost = "one pass; singular values of a batch's predictions"
    terms = ("nuclear",)

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """−NWD, its gradient reversed at the features."""
        source, target = out.both()
        discrepancy = nuclear_discrepancy(source.logits, target.logits)
        return {"nuclear": reverse_at(-discrepancy, out.extracted, self.alpha(out))}
