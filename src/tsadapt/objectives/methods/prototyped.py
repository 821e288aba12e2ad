"""What methods have in common that classify by class prototypes of the source, which they keep from batch to batch.

Shapes: B samples of a domain, K features, C classes, D values of an embedding.
"""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from tsadapt.core import class_prototypes, running_prototypes
from tsadapt.objectives.base import Context, Method, Outputs, Step
from tsadapt.settings import setting

__all__ = ["Prototyped", "WithPrototypes"]


@dataclass(frozen=True)
class WithPrototypes(Outputs):
    """Outputs, and the `prototypes` (C, D) by which they classify; `met` (C,) says which of them there are."""

    prototypes: Tensor | None = None
    met: Tensor | None = None


class Prototyped(Method):
    """A method whose logits compare a feature with the prototype of each class: W f + b, W and b made of prototypes.

    A prototype is the mean of an embedding over the source rows of a class, kept over the batches; a class that was
    never met has its prototype at the origin. All terms see these logits, and after every step W and b are written into
    the network's linear layer, by which it predicts: no gradient reaches that layer. The prototypes are themselves made
    of features, so the source's logits are not linear in them.
    """

    linear = False

    prototype_rate: float = setting(
        0.1, "Share of a batch in the prototypes (ρ): 1 takes each batch's own.", above=0, at_most=1
    )

    prototypes: Tensor
    met: Tensor

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        self.register_buffer("prototypes", torch.zeros(len(context.classes), self.width(context)))
        self.register_buffer("met", torch.zeros(len(context.classes), dtype=torch.bool))

    def width(self, context: Context) -> int:
        """D."""
        return context.dim

    def embed(self, features: Tensor) -> Tensor:
        """What prototypes are means of: (B, D)."""
        return features

    def head_of(self, prototypes: Tensor) -> tuple[Tensor, Tensor]:
        """W (C, K) and b (C,)."""
        raise NotImplementedError(f"{type(self).__name__} makes no head")

    def seen(self, out: Outputs) -> WithPrototypes:
        """Logits by the prototypes, the batch taken in, with gradients through its part of them."""
        batch, count = class_prototypes(self.embed(out.source.features), out.labels(), len(self.context.classes))
        prototypes = running_prototypes(self.prototypes, self.met, batch, count, self.prototype_rate)
        seen = out.through(*self.head_of(prototypes))
        plain = {field.name: getattr(seen, field.name) for field in fields(Outputs)}
        return WithPrototypes(**plain, prototypes=prototypes, met=self.met | (count > 0))

    @torch.no_grad()
    def finish(self, step: Step, out: Outputs) -> None:
        """Keep the prototypes, and leave the head that they make to predict."""
        assert isinstance(out, WithPrototypes)
        assert out.prototypes is not None
        assert out.met is not None
        self.prototypes.copy_(out.prototypes)
        self.met.copy_(out.met)
        weight, bias = self.head_of(self.prototypes)
        layer = step.linear_layers[0]
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
