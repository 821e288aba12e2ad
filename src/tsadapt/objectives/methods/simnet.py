"""SimNet: a learned similarity to class prototypes in place of a linear head, on features that DANN aligns."""

from typing import Any

import torch
from torch import Tensor, nn

from tsadapt.core import orthogonality_penalty
from tsadapt.objectives.base import METHODS, Context, Outputs
from tsadapt.objectives.methods.dann import DANN
from tsadapt.objectives.methods.prototyped import Prototyped, WithPrototypes

__all__ = ["SimNet"]

RANK = 64
"""Of the bilinear form; no more than there are features."""

ORTHOGONALITY = 0.1
"""Weight of the penalty, ours; `--term-weight orthogonality=…` multiplies it."""


@METHODS.register("simnet")
class SimNet(Prototyped, DANN):
    """Similarity learning: rows belong to the class whose prototype is most similar by a learned bilinear form.

        z^c = f · S μ^c,   μ^c = mean of g(f) over the source rows of class c,   S = AᵀB of low rank
        L = L_d + 0.1 ‖μμᵀ − I‖_F²/C

    g is a layer of its own, K → K with ReLU. The source learns by the source term on z, and L_d is DANN's. μ is kept
    over the batches.

    What can be read of the paper names prototypes of source images, a similarity learned with them, and domain-
    invariant features; no code is known. All else is our reading: the bilinear form and its rank, the penalty and its
    weight, g on top of the shared features and not a network beside the other, and the kept means.
    """

    paper = "Pinheiro, CVPR 2018"
    terms = ("domain", "orthogonality")
    cost = "one pass; a discriminator, an embedding"
    practice = """It is DANN whose head is a learned similarity to a prototype of each class, which is made of the
    source rows of that class. It assumes and needs what DANN does: features that can be made alike in both domains
    without mixing classes, and similar class shares. It helps where a class is better described by its members than by
    a weight of its own, as with many classes of few rows. It hurts where a class has several clusters, since one
    prototype stands for them all. `prototype_cosine` near 1 in the records says that prototypes have collapsed into
    one."""

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        k = context.dim
        self.embedding = nn.Sequential(nn.Linear(k, k), nn.ReLU())
        self.of_feature = nn.Linear(k, min(k, RANK), bias=False)
        self.of_prototype = nn.Linear(k, min(k, RANK), bias=False)

    def embed(self, features: Tensor) -> Tensor:
        """G of the features."""
        embedded: Tensor = self.embedding(features)
        return embedded

    def head_of(self, prototypes: Tensor) -> tuple[Tensor, Tensor]:
        """W = μ Sᵀ, no bias."""
        weight = self.of_prototype(prototypes) @ self.of_feature.weight
        return weight, weight.new_zeros(len(weight))

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """DANN's term, and the penalty of the prototypes that there are."""
        assert isinstance(out, WithPrototypes)
        assert out.prototypes is not None
        penalty = orthogonality_penalty(out.prototypes[out.met])
        return {**super().losses(out), "orthogonality": ORTHOGONALITY * penalty}

    @torch.no_grad()
    def describe(self, out: Outputs) -> dict[str, float]:
        """How alike two prototypes are on average: the mean cosine of all pairs; and DANN's values."""
        assert isinstance(out, WithPrototypes)
        assert out.prototypes is not None
        mu = nn.functional.normalize(out.prototypes[out.met], dim=1)
        n = len(mu)
        alike = float(((mu @ mu.T).sum() - n) / (n * (n - 1))) if n > 1 else 0.0
        return {"prototype_cosine": alike, **super().describe(out)}
