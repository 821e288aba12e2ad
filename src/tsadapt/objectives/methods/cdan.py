"""CDAN and CDAN+E: a discriminator on features and predictions together."""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core import certainty_weights, multilinear_map, randomized_map, reverse_gradient
from tsadapt.objectives.base import METHODS, Context, Outputs
from tsadapt.objectives.methods.dann import Adversarial
from tsadapt.settings import setting

__all__ = ["CDAN", "CDANE"]

MULTILINEAR_LIMIT = 4096
"""Values of f ⊗ g above which a randomised map takes its place."""


@METHODS.register("cdan")
class CDAN(Adversarial):
    """Conditional domain-adversarial training: a discriminator on f ⊗ g, g = softmax(ŷ) a constant.

    Where K·C is large, a randomised map of f and g takes the place of f ⊗ g; its matrices are buffers.
    """

    paper = "Long et al., NeurIPS 2018"
    practice = (
        "It is DANN with a discriminator that sees features and predictions together, so that it can compare class "
        "with class. It assumes that the first predictions on the target are mostly right. It helps where classes "
        "are several and each has its own shift. It hurts where the source model is poor, since wrong predictions "
        "then align wrong classes. The discriminator's input grows with classes times features, up to 4,096."
    )
    cost = "one pass; a discriminator on features times classes"

    r_f: Tensor
    r_g: Tensor

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        k, c, width = context.dim, len(context.classes), context.discriminator_width
        self.randomized = k * c > MULTILINEAR_LIMIT
        if self.randomized:
            self.register_buffer("r_f", torch.randn(k, width))
            self.register_buffer("r_g", torch.randn(c, width))

    def inputs(self, context: Context) -> int:
        """K·C of f ⊗ g, or as many as the randomised map gives."""
        product = context.dim * len(context.classes)
        return context.discriminator_width if product > MULTILINEAR_LIMIT else product

    def mapped(self, out: Outputs) -> Tensor:
        """T(f, g)."""
        source, target = out.both()
        f = torch.cat([source.features, target.features])
        g = F.softmax(torch.cat([source.logits, target.logits]).detach(), dim=1)
        return randomized_map(f, g, self.r_f, self.r_g) if self.randomized else multilinear_map(f, g)


@METHODS.register("cdan+e")
class CDANE(CDAN):
    """CDAN whose certain samples count more: w = 1 + exp(−H(g)), normalised within each domain."""

    practice = (
        "It is CDAN whose sure rows count up to twice as much, so that easy rows are aligned first. It assumes that "
        "sure predictions are right ones. It helps where the first predictions on the target are mixed in quality. "
        "It hurts where the network is sure and wrong, which a strong shift can bring about."
    )

    entropy_grad: Literal["none", "reversed"] = setting(
        "none", "Keep CDAN+E's weights constant, or pass a reversed gradient through them, as published."
    )

    def weights(self, out: Outputs) -> tuple[Tensor, Tensor]:
        """1 + exp(−H(g)) of both domains."""
        source, target = out.both()

        def weight(logits: Tensor) -> Tensor:
            if self.entropy_grad == "none":
                return certainty_weights(logits.detach())
            return certainty_weights(reverse_gradient(logits, self.alpha(out)))

        return weight(source.logits), weight(target.logits)
