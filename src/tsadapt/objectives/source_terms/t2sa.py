"""T²SA: TSA with an angular margin, and augmented features held near the target's class means.

    Z^c = f·ŵ_c + λ(ŵ_c − ŵ_y)·Δμ^y + ½λ(ŵ_c − ŵ_y)ᵀΣ_t^y(ŵ_c − ŵ_y) − η·1[c = y],   ŵ_c = w_c/‖w_c‖
    L = CE(Z, y) + γ·mean_i (‖f_i + λΔμ^y − m_t^y‖² + λ tr Σ_t^y)

m_t^y is the mean of the target rows of the batch that are predicted as y, with gradient. The head has no bias. Beside
mutual information it is the published objective: --source-term t2sa --mi.

Statistics are those of our memories, where the published code averages over batches and lets a class that is absent
from a batch draw its mean to zero. λ tr Σ, of the memory, is a constant.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tsadapt.core import prototype_distance, transferable_cross_entropy
from tsadapt.objectives.base import SOURCE_TERMS, Head, Outputs
from tsadapt.objectives.source_terms.tsa import TowardsTarget
from tsadapt.settings import setting

__all__ = ["T2SA"]


@SOURCE_TERMS.register("t2sa")
class T2SA(TowardsTarget):
    """TSA with an angular margin, and augmented features held near the target's class means (T²SA)."""

    paper = "TTSA (code: BIT-DA/TTSA), 2021"
    practice = (
        "It assumes what `tsa` assumes, and that all classes can have boundaries of equal weight: rows of the head are "
        "kept at length one, without a bias. The margin asks more of the source, and the prototype constraint moves "
        "features of both domains together, class by class. It helps where classes are many and balanced. It hurts "
        "where predictions on the target are mostly wrong, since features are then drawn to wrong classes, and where "
        "features are short: logits are then small, and training is slow."
    )
    cost = "one pass; variances of all target features"

    angular_margin: float = setting(0.5, "How much larger the logit of the right class must be (η).", at_least=0)
    prototype_weight: float = setting(
        1e-3, "Weight of the distance between augmented features and the target batch's class means (γ).", at_least=0
    )

    @torch.no_grad()
    def constrain(self, linear_layers: Sequence[nn.Linear]) -> None:
        """Rows of length one and no bias, so that the network predicts by the head that this term trains."""
        for layer in linear_layers:
            layer.weight.copy_(F.normalize(layer.weight, dim=1))
            if layer.bias is not None:
                layer.bias.zero_()

    def of_head(self, i: int, head: Head, out: Outputs) -> Tensor:
        """L of one head."""
        assert head.target is not None
        assert out.target is not None
        source, target = self.both(i, out)
        length = head.weight.float().norm(dim=1).clamp_min(1e-12)
        # f·ŵ from the network's own logits, in which dropout may stand before the head.
        logits = head.source.logits if head.bias is None else head.source.logits - head.bias
        labels, strength = out.labels(), self.strength(out)
        loss = transferable_cross_entropy(
            logits / length, labels, head.weight / length[:, None], source, target, strength,
            mean_shift=self.mean_shift, covariance=self.covariance, policy=self.policy, min_count=self.min_count,
            label_smoothing=self.label_smoothing, margin=self.angular_margin,
        )  # fmt: skip
        shift = variance = None
        if self.mean_shift:
            (count_s, mean_s), (count_t, mean_t) = source.class_means(), target.class_means()
            both = (count_s.to(mean_t.device) > 0) & (count_t > 0)
            shift = torch.where(both[:, None], mean_t - mean_s.to(mean_t), 0.0)
        if self.covariance == "target":
            variance = target.total_variances()
        guesses = out.target.logits.detach().argmax(1)  # of all heads together, as in the memory
        distance = prototype_distance(
            head.source.features, labels, head.target.features, guesses, shift, variance, strength
        )
        return loss + self.prototype_weight * distance
