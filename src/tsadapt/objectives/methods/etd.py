"""ETD: the source's features carried to the target's at the least cost, which the features then lower."""

from typing import Any

import torch
from torch import Tensor, nn

from tsadapt.core import attended_cost, conditional_entropy, entropic_dual
from tsadapt.objectives.base import METHODS, Context, Outputs, Step
from tsadapt.objectives.methods.pretrained import Pretrained
from tsadapt.settings import setting

__all__ = ["ETD"]

WIDTH = 512
"""Hidden features of a potential, as published."""

TRANSPORT, ENTROPY = 0.1, 0.5
"""Weights of the two terms, as published; `--term-weight transport=…` multiplies one."""


class Potential(nn.Sequential):
    """K → 512 → 1 with LeakyReLU: a potential of transport, as a function of the features."""

    def __init__(self, dim: int) -> None:
        super().__init__(_linear(dim, WIDTH), nn.LeakyReLU(0.2), _linear(WIDTH, 1), nn.Flatten(0))


@METHODS.register("etd")
class ETD(Pretrained):
    """Enhanced transport distance: transport from source to target features, at a cost that attention weights.

        C_ij = σ(q(z_i)·k(z_j)) ‖f_i − f_j‖,    z the logits, q and k linear
        W = mean u(f_s) + mean v(f_t) − ε log mean_ij exp((u(f_i) + v(f_j) − C_ij)/ε)

    Stages, by shares of the steps: the source alone (`pretraining`); then the potentials u and v alone
    (`potentials_first`), the network as it is; then, on every batch, `potential_steps` steps of u and v, which raise W,
    and one of the network, q and k on source term + target terms + 0.1·W + 0.5·mean H(p_t).

    The network's bottleneck stands for the published one (512 features with LeakyReLU), and f are its features: those
    that the head is linear in, so that TSA composes. The domains are forwarded one by one, as in the published code.
    """

    paper = "Li et al., CVPR 2020"
    terms = ("transport", "target_entropy")
    phases = ("potentials",)
    separate_bn = True
    descends = True
    cost = "one pass, and `potential_steps` of two small networks"
    practice = """It assumes that each target row can be paired with source rows near it, whole batches at a time.
    Attention, learned from the logits, makes pairs count less for which that is wrong; since it lowers the cost too,
    watch `attention` in the records, which can fall towards zero. Half of what it adds is entropy of the target, so it
    helps where most predictions are right at first, and confirms those that are wrong. It hurts where the classes have
    other shares in the two domains: transport must carry all of one batch to all of the other."""

    potentials_first: float = setting(
        0.3, "Share of the steps, after the pretraining, that train ETD's potentials alone.", at_least=0, at_most=1
    )
    potential_steps: int = setting(10, "Steps of ETD's potentials for one of the network.", above=0, at_most=1000)
    transport_epsilon: float = setting(1.0, "How blurred ETD's transport is (ε), in units of the features.", above=0)

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        classes = len(context.classes)
        self.u, self.v = Potential(context.dim), Potential(context.dim)
        self.query, self.key = _linear(classes, classes), _linear(classes, classes)

    def update(self, step: Step) -> None:
        """A step on the source; or steps of the potentials, and, after their stage, one of the network."""
        if self.pretrains(step.progress):
            step.descend()
            return
        out = step.forward()
        source, target = out.both()
        f_s, f_t, cost = source.features.detach(), target.features.detach(), self.costs(out).detach()
        for _ in range(self.potential_steps):
            raised = entropic_dual(self.u(f_s), self.v(f_t), cost, self.transport_epsilon)
            step.minimize({"transport": -raised}, only=[self.u, self.v], phase="potentials")
        if self.pretrains(step.progress - self.potentials_first):
            return
        step.descend(self.of_network, only=[step.extractor, step.heads, self.query, self.key], out=out)

    def of_network(self, out: Outputs) -> dict[str, Tensor]:
        """What the network minimises beside the source term."""
        source, target = out.both()
        u, v = self.u(source.features), self.v(target.features)
        distance = entropic_dual(u, v, self.costs(out), self.transport_epsilon)
        return {"transport": TRANSPORT * distance, "target_entropy": ENTROPY * conditional_entropy(target.logits)}

    def costs(self, out: Outputs) -> Tensor:
        """C (B_s, B_t)."""
        source, target = out.both()
        return attended_cost(source.features, target.features, self.query(source.logits), self.key(target.logits))

    @torch.no_grad()
    def describe(self, out: Outputs) -> dict[str, float]:
        """The mean of the attention."""
        source, target = out.both()
        return {"attention": float(torch.sigmoid(self.query(source.logits) @ self.key(target.logits).T).mean())}


def _linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer that starts as in the published code."""
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=0.05)
    nn.init.zeros_(layer.bias)
    return layer
