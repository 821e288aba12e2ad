"""TAT: copies of features that lead from each domain to the other, on which the classifier is trained too."""

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core import climb, conditional_entropy, domain_loss
from tsadapt.objectives.base import METHODS, Outputs
from tsadapt.objectives.methods.discriminating import Discriminating
from tsadapt.settings import setting

__all__ = ["TAT"]

RATE, CLASS_RATE, SPRING = 2.0, 3.0, 0.1
"""How fast copies climb the discriminator's error and the classifier's, and what holds them back, as published."""

ENTROPY = 0.1
"""Weight of the target's entropy, as published; `--term-weight target_entropy=…` multiplies it."""


@METHODS.register("tat")
class TAT(Discriminating):
    """Transferable adversarial training: copies of features that fool a discriminator, on which the head learns too.

        f̃_t climbs  −log(1 − D(f̃)) − 0.1 ‖f̃ − f_t‖²,   20 steps from f_t
        f̃_s climbs  −log D(f̃) − 0.1 ‖f̃ − f_s‖²,        20 steps from f_s, then 20 on −log p_y(f̃) − 0.1 ‖f̃ − f_s‖²

        L = L_d + mean −log p_y(f̃_s) + Σ_j ‖p(f_t) − p(f̃_t)‖² + 0.1 mean H(p(f_t))

    D learns from the features as constants, and steers the copies: nothing of it reaches the network. The published
    features are fixed. Here f are those that the head sees, and f̃ = f + Δ with Δ a constant: what the copies teach goes
    through the head to whatever made f, if that is trained. The domains are forwarded one by one, as in the published
    code.
    """

    paper = "Liu et al., ICML 2019"
    terms = ("domain", "copies", "consistency", "target_entropy")
    separate_bn = True
    cost = "one pass; `climbing_steps` passes of a discriminator"
    practice = """It does not push the domains together, so it does not mix classes as adversarial features may: it
    fills the gap between them with copies, on which the classifier must keep its word. It assumes that the features are
    good already, and that a row keeps its class on the way. It helps with features of a strong backbone, and where
    alignment has done harm. It hurts where the domains lie far apart, for the copies stay near their rows
    (`copy_distance` in the records), and, like all that minimise entropy, where the first predictions on the target are
    wrong. A step takes many times as long as others."""

    climbing_steps: int = setting(20, "Steps that each of TAT's copies climbs.", above=0, at_most=1000)

    def mapped(self, out: Outputs) -> Tensor:
        """The features."""
        return torch.cat([view.features for view in out.both()])

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """What D learns, and what the head and the features learn from the copies and of the target."""
        source, target = out.both()
        d_s, d_t = self.discriminator(self.mapped(out).detach()).split([len(source.index), len(target.index)])
        moved_s, moved_t = self.moves(out)
        z_s, z_t = self._logits(out, source.features + moved_s), self._logits(out, target.features + moved_t)
        z = self._logits(out, target.features)
        return {
            "domain": domain_loss(d_s, d_t, smoothing=self.domain_smoothing),
            "copies": F.cross_entropy(z_s, out.labels()),
            "consistency": (F.softmax(z, dim=1) - F.softmax(z_t, dim=1)).square().sum(),
            "target_entropy": ENTROPY * conditional_entropy(z),
        }

    def moves(self, out: Outputs) -> tuple[Tensor, Tensor]:
        """Δ of the source (B_s, K) and of the target (B_t, K); D without dropout."""
        features, rows = self.mapped(out).detach(), len(out.source.index)
        weight, bias = (None if p is None else p.detach() for p in (out.heads[0].weight, out.heads[0].bias))
        assert weight is not None
        domain = torch.ones(len(features), device=features.device)
        domain[:rows] = -1  # −log D = softplus(−d), −log(1 − D) = softplus(d)

        def of_domain(f: Tensor) -> Tensor:
            return F.softplus(domain * self.discriminator(f)).sum()

        def of_class(f: Tensor) -> Tensor:
            return F.cross_entropy(F.linear(f, weight, bias), out.labels(), reduction="sum")

        self.discriminator.eval()
        copies = climb(features, of_domain, self.climbing_steps, RATE, spring=SPRING, anchor=features)
        self.discriminator.train()
        f_s, f_t = features[:rows], features[rows:]
        hard = climb(copies[:rows], of_class, self.climbing_steps, CLASS_RATE, spring=SPRING, anchor=f_s)
        return hard - f_s, copies[rows:] - f_t

    @staticmethod
    def _logits(out: Outputs, features: Tensor) -> Tensor:
        return F.linear(features, out.heads[0].weight, out.heads[0].bias)

    def describe(self, out: Outputs) -> dict[str, float]:
        """How far the copies of the target are from their rows, and the discriminator's accuracy."""
        distance = self.moves(out)[1].norm(dim=1).mean()
        return {"copy_distance": float(distance), **super().describe(out)}
