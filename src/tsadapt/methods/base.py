"""The contract of a method. It names its transfer terms, and never calls backward, moves a tensor or reads a label.

Shapes: B samples of a domain, K features, C classes.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from tsadapt.registry import Registry

__all__ = ["METHODS", "Head", "Method", "Outputs", "View"]


@dataclass(frozen=True)
class View:
    """One domain's half of the batch: `features` (B, K), `logits` (B, C), `index` (B,); `labels` of the source only."""

    features: Tensor
    logits: Tensor
    index: Tensor
    labels: Tensor | None = None


@dataclass(frozen=True)
class Head:
    """A head linear in its features, which TSA maps over: features and logits of both domains, W (C, K) and b (C,)."""

    source: View
    target: View | None
    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class Outputs:
    """What a step knows: both views (the target's only if something asked for it), the heads, progress = t/T."""

    source: View
    target: View | None
    heads: tuple[Head, ...]
    progress: float


class Method(nn.Module):
    """A method of adaptation: named, weighted transfer terms on top of any source term.

    `needs_target` says whether the target must be forwarded for it.
    """

    needs_target = True

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.dim, self.classes = dim, classes

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """The transfer terms, each ready to be summed."""
        raise NotImplementedError(f"{type(self).__name__} has no losses")


METHODS: Registry[type[Method]] = Registry("method")
