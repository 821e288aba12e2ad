"""RTN: a classifier for the target, and a residual on top of it that makes it one for the source."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tsadapt.core import conditional_entropy, fused_features, multi_kernel_mmd, reversal_coefficient
from tsadapt.objectives.base import METHODS, Context, Head, Outputs
from tsadapt.objectives.methods.dan import KernelMeans

__all__ = ["RTN"]

ENTROPY_WEIGHT = 0.1
"""At the end of its ramp, as in the published network; `--term-weight target_entropy=…` multiplies it."""

SMALL = 0.01
"""Deviation of the residual's first weights: the two classifiers begin as one."""


@METHODS.register("rtn")
class RTN(KernelMeans):
    """Residual transfer: the source's classifier is the target's and a small residual; features and logits align.

        z_S = z_T + W_2 relu(W_1 z_T),   L = 0.1·r(t/T)·mean H(softmax z_T^t) + MMD²(f_s ⊗ z_T^s, f_t ⊗ z_T^t)

    The source learns through z_S, and z_T, the network's own head, predicts. r = 2/(1 + exp(−10·t/T)) − 1 ramps the
    entropy. f ⊗ z_T is halved by averaging neighbouring features, and compared by DAN's kernels. z_S is not linear in
    f, so TSA, ISDA and the sampled form have nothing to augment and are refused.
    """

    paper = "Long et al., NeurIPS 2016"
    practice = (
        "It lets the two domains have classifiers that differ a little: the source is learned through a residual on "
        "top of the target's classifier. It assumes that this difference is small and a function of the logits, and "
        "that features times logits can have one distribution in both domains. It helps where what one sees is alike "
        "and the meaning of a class has moved. It hurts when the target's classes have other shares, like all methods "
        "that match distributions, and when first predictions are poor: the entropy makes them sure, right or not. "
        "Watch `residual_share`: near 0 the two classifiers are one, and RTN is DAN on features and logits."
    )
    cost = "one pass; distances of all pairs of features times classes"
    terms = ("target_entropy", "mmd")
    linear = False

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        classes = len(context.classes)
        layers = [nn.Linear(classes, classes) for _ in range(2)]
        for layer in layers:
            nn.init.normal_(layer.weight, std=SMALL)
            nn.init.zeros_(layer.bias)
        self.residual = nn.Sequential(layers[0], nn.ReLU(), layers[1])

    def seen(self, out: Outputs) -> Outputs:
        """Source terms see z_S; all else sees z_T, which predicts."""
        head = out.heads[0]
        z = head.source.logits
        source = replace(head.source, logits=z + self.residual(z))
        return replace(out, heads=(Head(source, head.target, head.weight, head.bias),))

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """The entropy of the target, and MMD² of features times logits; the residual has no part in either."""
        source, target = out.both()
        fused_s, fused_t = (fused_features(view.features, view.logits) for view in (source, target))
        return {
            "target_entropy": ENTROPY_WEIGHT * reversal_coefficient(out.progress) * conditional_entropy(target.logits),
            "mmd": multi_kernel_mmd(fused_s, fused_t, self.mmd_estimator),
        }

    @torch.no_grad()
    def describe(self, out: Outputs) -> dict[str, float]:
        """How large the residual is beside the logits of the source."""
        z = out.source.logits
        return {"residual_share": float(self.residual(z).abs().mean() / z.abs().mean().clamp_min(1e-12))}
