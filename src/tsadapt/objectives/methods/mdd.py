"""MDD: a second classifier that departs from the first on the target, and features on which it cannot."""

from typing import Any

import torch
from torch import Tensor, nn

from tsadapt.core import margin_disparity_loss, reverse_gradient
from tsadapt.objectives.base import METHODS, Context, Outputs
from tsadapt.objectives.methods.reversing import Reversing
from tsadapt.settings import setting

__all__ = ["MDD"]

LARGEST_ALPHA = 0.1
"""What α of the reversed gradient rises to, as published."""


@METHODS.register("mdd")
class MDD(Reversing):
    """Margin disparity discrepancy: a second classifier contradicts the first on the target, and features prevent it.

        L = γ CE(h'(GRL(f_s)), ŷ_s) − mean log(1 − softmax h'(GRL(f_t))[ŷ_t]),   ŷ = argmax of the head, a constant

    h' is the method's own: K → width → C with ReLU and dropout, as wide as a discriminator would be. It learns at full
    strength and the features against it, times α ≤ 0.1; the head that predicts gets no gradient from this term. The
    domains are forwarded together, as in MDD's code.
    """

    paper = "Zhang et al., ICML 2019"
    practice = (
        "It assumes that the classifier does well on the source and that one set of features can serve both "
        "domains. A second classifier looks for places in the target where one could predict otherwise, and the "
        "features close them. It helps where the source is learned well and training is long enough for the second "
        "classifier to learn. It hurts when the first predictions on the target are bad, since it makes the second "
        "classifier confirm them. The published γ are 2 and 4."
    )
    cost = "one pass; a second classifier"
    terms = ("disparity",)

    margin_factor: float = setting(4.0, "Weight of the source in MDD's disparity (γ).", above=0)

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        width = context.discriminator_width
        self.second_head = nn.Sequential(
            nn.Linear(context.dim, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, len(context.classes))
        )

    def alpha(self, out: Outputs) -> float:
        """α of the reversed gradient, up to 0.1."""
        return LARGEST_ALPHA * super().alpha(out)

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """The disparity: h' lowers it, and by the reversed gradient the features raise it."""
        source, target = out.both()
        f = reverse_gradient(torch.cat([source.features, target.features]), self.alpha(out))
        z_s, z_t = self.second_head(f).split([len(source.index), len(target.index)])
        y_s, y_t = (view.logits.detach().argmax(1) for view in (source, target))
        return {"disparity": margin_disparity_loss(z_s, y_s, z_t, y_t, self.margin_factor)}
