"""GVB-GD: bridges between domain-specific and invariant representations, which vanish while training."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tsadapt.core import certainty_weights, domain_loss, reverse_gradient
from tsadapt.models.discriminator import Discriminator
from tsadapt.objectives.base import METHODS, Context, Outputs, Step
from tsadapt.objectives.methods.dann import Adversarial

__all__ = ["GVB"]


class BridgedDiscriminator(Discriminator):
    """A discriminator whose logit is the difference of two linear layers on the same hidden units: d − r."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(inputs, hidden)
        self.bridge = nn.Linear(hidden, 1)

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """D − r and r (B,) of inputs (B, K)."""
        hidden = self.layers[:-1](x)
        r = self.bridge(hidden).squeeze(1)
        return self.layers[-1](hidden).squeeze(1) - r, r

    def forward(self, x: Tensor) -> Tensor:
        """D − r."""
        return self.both(x)[0]


@METHODS.register("gvb")
class GVB(Adversarial):
    """Gradually vanishing bridge (GVB-GD): what a head and a discriminator cannot share goes into bridges that shrink.

        z = (W f + b) − (V f + v),   L = L_d(D(softmax z) − r) + mean |V f + v| + mean |r|

    V is the bridge of the head, r that of the discriminator. The discriminator sees predictions alone, which learn from
    it by the reversed gradient; rows count exp(−H), normalised within each domain, and that weight passes a reversed
    gradient as well. A trained network predicts by W − V, which is a linear head: TSA composes. The domains are
    forwarded one by one, as in GVB's code.
    """

    paper = "Cui et al., CVPR 2020"
    practice = (
        "It makes predictions, not features, such that a discriminator cannot tell the domains, and lets a second "
        "linear layer, the bridge, take up what is specific to a domain; both bridges are held small. It assumes that "
        "predictions hold what the domains must share, so it suits many classes better than a few: with two classes "
        "a discriminator sees one number. It hurts when the classes of the target are uneven, since equal "
        "distributions of predictions are then wrong ones, and where sure predictions are wrong, because they count "
        "most. Watch `bridge_share`: a bridge as large as the logits has not vanished."
    )
    cost = "one pass; a discriminator on predictions"
    terms = ("domain", "bridge", "discriminator_bridge")
    separate_bn = True

    discriminator: BridgedDiscriminator

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        self.discriminator = BridgedDiscriminator(self.inputs(context), context.discriminator_width)
        self.bridge = nn.Linear(context.dim, len(context.classes))

    def inputs(self, context: Context) -> int:
        """One value for each class."""
        return len(context.classes)

    def prepare(self, step: Step) -> None:
        """W = (W − V) + V: between iterations the network's layer holds the weights that predict."""
        self._add_bridge(step, 1)

    def finish(self, step: Step, out: Outputs) -> None:
        """W − V."""
        self._add_bridge(step, -1)

    @torch.no_grad()
    def _add_bridge(self, step: Step, sign: int) -> None:
        layer = step.linear_layers[0]
        layer.weight.add_(self.bridge.weight, alpha=sign)
        layer.bias.add_(self.bridge.bias, alpha=sign)

    def seen(self, out: Outputs) -> Outputs:
        """The head without the bridge: W − V, with gradients to both."""
        head = out.heads[0]
        assert head.bias is not None
        return out.through(head.weight - self.bridge.weight, head.bias - self.bridge.bias)

    def mapped(self, out: Outputs) -> Tensor:
        """The predictions of both domains."""
        return F.softmax(torch.cat([view.logits for view in out.both()]), dim=1)

    def weights(self, out: Outputs) -> tuple[Tensor, Tensor]:
        """exp(−H) of both domains, with a reversed gradient."""
        alpha = self.alpha(out)
        w_s, w_t = (certainty_weights(reverse_gradient(view.logits, alpha), base=0.0) for view in out.both())
        return w_s, w_t

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """L_d of predictions, and the sizes of the two bridges."""
        d, r = self.discriminator.both(reverse_gradient(self.mapped(out), self.alpha(out)))
        rows = len(out.source.index)
        return {
            "domain": domain_loss(d[:rows], d[rows:], *self.weights(out), smoothing=self.domain_smoothing),
            "bridge": self._bridged(out).abs().mean(),
            "discriminator_bridge": r.abs().mean(),
        }

    def _bridged(self, out: Outputs) -> Tensor:
        v: Tensor = self.bridge(torch.cat([view.features for view in out.both()]))
        return v

    @torch.no_grad()
    def describe(self, out: Outputs) -> dict[str, float]:
        """How large the head's bridge is beside the logits, and what every discriminator says."""
        size = torch.cat([view.logits for view in out.both()]).abs().mean().clamp_min(1e-12)
        return {"bridge_share": float(self._bridged(out).abs().mean() / size), **super().describe(out)}
