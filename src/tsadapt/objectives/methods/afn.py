"""AFN: features of both domains whose norms grow step by step."""

import torch
from torch import Tensor

from tsadapt.core import norm_growth_loss
from tsadapt.objectives.base import METHODS, Method, Outputs
from tsadapt.settings import setting

__all__ = ["AFN"]

WEIGHT = 0.05
"""Of the term, as published; `--term-weight norm=…` multiplies it."""


@METHODS.register("afn")
class AFN(Method):
    """Adaptive feature norm (SAFN): makes the features of both domains longer, a step at a time.

        L = 0.05 · Σ_{source, target} mean (‖f‖ − (r + Δr))²,   r = ‖f‖ as a constant

    The value is constantly 0.1·Δr²: look at the logged norms instead. Only the product of weight and Δr counts. The
    published entropy of the target is left to target terms. The domains are forwarded one by one, as in AFN's code.
    """

    paper = "Xu et al., ICCV 2019"
    practice = (
        "It assumes that target features are too short rather than in the wrong place: networks give unfamiliar "
        "input small features, near all class boundaries. It makes features of both domains longer, step by step, "
        "and never compares the domains, so other class shares do it no harm. It helps with a bottleneck trained "
        "from scratch and large gaps in feature norm (look at the logged norms). It does nothing about a shift in "
        "direction, and in a long run with a large step it fights weight decay until predictions are overconfident."
    )
    terms = ("norm",)
    separate_bn = True

    norm_step: float = setting(1.0, "How much longer AFN makes every feature (Δr).", above=0)

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """The pull at the norms of both domains."""
        source, target = out.both()
        pull = norm_growth_loss(source.features, self.norm_step) + norm_growth_loss(target.features, self.norm_step)
        return {"norm": WEIGHT * pull}

    @torch.no_grad()
    def describe(self, out: Outputs) -> dict[str, float]:
        """The mean norms of the features."""
        norms = [float(torch.linalg.vector_norm(view.features, dim=1).mean()) for view in out.both()]
        return {"source_feature_norm": norms[0], "target_feature_norm": norms[1]}
