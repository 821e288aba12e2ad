"""FixMatch: labels that the network is sure of on one view of a target row, learned on another view.

    L = (1/B) Σ_j 1[max P_j > τ]·CE(strong view of j, argmax P_j),   P_j = the prediction on the weak view, a constant

What the views are depends on the data:

    images                 weak: as training sees it; strong: the same with two random changes of shape or colour
    stored activations     two of the stored views of an image
    vectors                two dropout views: each value is replaced by its batch's mean with some probability
"""

import torch
from torch import Tensor

from tsadapt.core import confident_label_loss, dropout_view
from tsadapt.objectives.base import TARGET_TERMS, Outputs, TargetTerm
from tsadapt.settings import setting

__all__ = ["FixMatch"]


@TARGET_TERMS.register("fixmatch")
class FixMatch(TargetTerm):
    """Consistency of two views: what the network is sure of on one view of a target row, it learns on another.

    Features of a frozen backbone count as vectors. With several heads the combined prediction is used.
    """

    paper = "Sohn et al., NeurIPS 2020"
    practice = (
        "It assumes that changes which keep the class (another crop, other colours, a few values lost) should "
        "keep the prediction, and that predictions above `--confidence` are mostly right. It helps on images with "
        "a backbone that is trained, where strong changes stand for much of the shift, beside a method or mutual "
        "information that spreads the classes. It hurts where the network is sure and wrong: raise the threshold "
        "then. Lower it (0.8, say) where `confident_share` in the records stays near zero, as with many classes. "
        "Vectors and features of a frozen backbone have no other view: two dropout views stand in "
        "(`--view-dropout`), and say far less."
    )
    cost = "one more pass of the target's second view; two more with vectors, one of them forward only"
    needs_views = 2

    fixmatch_weight: float = setting(1.0, "Weight of FixMatch.", at_least=0)
    confidence: float = setting(
        0.9, "Largest probability above which a prediction becomes a pseudo-label (τ).", at_least=0, at_most=1
    )
    view_dropout: float = setting(
        0.1, "Share of values that a view of a vector loses; images have views of their own.", at_least=0, at_most=1
    )

    def forward(self, out: Outputs) -> Tensor:
        """L of the target batch, times its weight."""
        weak, strong = self._logits(out)
        return self.fixmatch_weight * confident_label_loss(weak, strong, self.confidence)

    def _logits(self, out: Outputs) -> tuple[Tensor, Tensor]:
        _, target = out.both()
        if out.second is not None:
            return target.logits, out.network(out.second)[1]
        x = out.inputs[1]
        assert x is not None
        generator = out.generator().clone_state()  # other terms draw what they would without this one
        first, second = (dropout_view(x, self.view_dropout, generator) for _ in range(2))
        with torch.no_grad():
            weak = out.network(first)[1]
        return weak, out.network(second)[1]

    def describe(self, out: Outputs) -> dict[str, float]:
        """The share of the target batch that the network is sure of."""
        sure = out.both()[1].logits.detach().softmax(1).amax(1) > self.confidence
        return {"confident_share": float(sure.float().mean())}
