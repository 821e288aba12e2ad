"""Augmented features drawn one by one, as the paper's distribution has them; training itself never draws."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tsadapt.core import FeatureMemory

__all__ = ["Augmenter"]


@dataclass(frozen=True)
class Augmenter:
    """Draws from N(f + λΔμ^y, λΣ_t^y) with the statistics of a run's memories; K features."""

    source: FeatureMemory
    target: FeatureMemory

    def directions(self, labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Δμ^y and a draw from N(0, Σ_t^y) for each label (B,): both (B, K); zero where a domain lacks the class."""
        (count_s, mean_s), (count_t, mean_t) = self.source.class_means(), self.target.class_means()
        shift = torch.zeros(len(labels), self.source.dim)
        spread = torch.zeros_like(shift)
        for i, y in enumerate(labels.tolist()):
            if count_s[y] > 0 and count_t[y] > 0:
                rows = self.target.factor(y)  # A with AᵀA = Σ
                shift[i] = (mean_t[y] - mean_s[y]).float()
                spread[i] = (torch.randn(len(rows), generator=generator) @ rows.float()).float()
        return shift, spread

    @staticmethod
    def at(features: Tensor, strength: float, shift: Tensor, spread: Tensor) -> Tensor:
        """F + λΔμ + √λ·draw: the same draw for every strength λ, so that strengths can be compared."""
        if not strength >= 0:
            raise ValueError(f"strength is {strength}, expected zero or more: it scales a covariance.")
        return features + strength * shift + math.sqrt(strength) * spread
