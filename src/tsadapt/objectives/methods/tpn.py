"""TPN: rows belong to the nearest class prototype, and prototypes of the two domains come together."""

from torch import Tensor

from tsadapt.core import class_prototypes, prototype_discrepancy, score_discrepancy
from tsadapt.objectives.base import METHODS, Outputs
from tsadapt.objectives.methods.prototyped import Prototyped

__all__ = ["TPN"]

CLASSES, SCORES = 0.1, 0.1
"""Weights of L_G and L_T, ours; `--term-weight class_discrepancy=…` and the like multiply a term."""


@METHODS.register("tpn")
class TPN(Prototyped):
    """Transferrable prototypes: rows belong to the nearest class mean, and the means of both domains come together.

        z = −‖f − μ_s‖²,   L = 0.1 L_G + 0.1 L_T
        L_G = mean_c (‖μ_s − μ_t‖² + ‖μ_s − μ_st‖² + ‖μ_t − μ_st‖²)
        L_T = mean_f ⅓ Σ_pairs ½ (KL(P_a ‖ P_b) + KL(P_b ‖ P_a)),   P_• = softmax(−‖f − μ_•‖²) for s, t and st

    In L_G and L_T, μ_s, μ_t and μ_st are a batch's class means of the source, of the target by its predictions, and of
    both; classes that one of the batches lacks are left out. The source learns by the source term on z, whose μ_s are
    kept over the batches, and predictions are by these.

    No code of the authors is known. L_T and the three means are as in third-party ports. Our reading are the distances
    themselves in L_G, where the paper measures in a kernel's space, the weights, the kept means, and domains that are
    forwarded one by one.
    """

    paper = "Pan et al., CVPR 2019"
    terms = ("class_discrepancy", "score_discrepancy")
    separate_bn = True
    cost = "one pass"
    practice = """It classifies by the nearest class mean and has no other head, so a class must be one cluster. It
    pulls the target rows predicted as a class, as a whole, to the source rows of that class. It assumes that most
    predictions are right from the start, and that batches hold several rows of most classes. It helps where whole
    classes have moved. It hurts where predictions are wrong, because a wrong mean pulls all of its rows, and with many
    classes and small batches, where few classes are in both: watch `shared_classes`. Distances of features are not
    scaled, so lower both weights if the source accuracy falls."""

    def head_of(self, prototypes: Tensor) -> tuple[Tensor, Tensor]:
        """−‖f − μ‖² = 2 μ·f − ‖μ‖², up to ‖f‖², which all classes share."""
        return 2 * prototypes, -prototypes.square().sum(1)

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """L_G and L_T."""
        source, target = out.both()
        given = source.features, out.labels(), target.features, target.logits.detach().argmax(1)
        return {
            "class_discrepancy": CLASSES * prototype_discrepancy(*given),
            "score_discrepancy": SCORES * score_discrepancy(*given),
        }

    def describe(self, out: Outputs) -> dict[str, float]:
        """The share of the source batch's classes that are predicted in the target batch."""
        _, target = out.both()
        classes = len(self.context.classes)
        counts = [
            class_prototypes(view.features.detach(), y, classes)[1] > 0
            for view, y in ((out.source, out.labels()), (target, target.logits.argmax(1)))
        ]
        return {"shared_classes": float((counts[0] & counts[1]).sum() / counts[0].sum())}
