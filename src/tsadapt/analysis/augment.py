"""Augmented features drawn one by one, as the paper's distribution has them; training itself never draws."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tsadapt.core import FeatureMemory

__all__ = ["Augmenter"]


@dataclass(frozen=True)
class Augmenter:
    """Draws from N(f + λΔμ^y, λΣ_t^y) with the statistics of a run's memories; K features.

    `mean_shift`, `covariance` and `min_count` are those that the run was trained with. A class of which a domain has
    fewer rows than `min_count` is left as it is.
    """

    source: FeatureMemory
    target: FeatureMemory
    mean_shift: bool = True
    covariance: bool = True
    min_count: int = 1

    def directions(self, labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Δμ^y and a draw from N(0, Σ_t^y) for each label (B,): both (B, K)."""
        (count_s, mean_s), (count_t, mean_t) = self.source.class_means(), self.target.class_means()
        shift = torch.zeros(len(labels), self.source.dim)
        spread = torch.zeros_like(shift)
        for y in sorted({*labels.tolist()}):
            if min(count_s[y], count_t[y]) < self.min_count:
                continue
            mine = labels == y
            if self.mean_shift:
                shift[mine] = (mean_t[y] - mean_s[y]).float()
            if self.covariance:
                rows = self.target.factor(y).float()  # A with AᵀA = Σ
                spread[mine] = torch.randn(int(mine.sum()), len(rows), generator=generator) @ rows
        return shift, spread

    @staticmethod
    def at(features: Tensor, strength: float, shift: Tensor, spread: Tensor) -> Tensor:
        """F + λΔμ + √λ·draw: the same draw for every strength λ, so that strengths can be compared."""
        if not strength >= 0:
            raise ValueError(f"strength is {strength}, expected zero or more: it scales a covariance.")
        return features + strength * shift + math.sqrt(strength) * spread
