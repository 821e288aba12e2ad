"""The contract of a method. It names its transfer terms, and never calls backward, moves a tensor or reads a label.

Shapes: B samples of a domain, K features, C classes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor, nn

from tsadapt.config import RunConfig
from tsadapt.core import reversal_coefficient
from tsadapt.registry import Registry

__all__ = ["METHODS", "Head", "Method", "Outputs", "Setting", "Step", "View"]


@dataclass(frozen=True)
class View:
    """One domain's half of the batch: `features` (B, K), `logits` (B, C), `index` (B,); `labels` of the source only.

    With several heads, `logits` are the combined ones: those that predict.
    """

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
    """What a step knows: both views (the target's only if something asked for it), the heads, progress = t/T.

    `classify` gives the logits of every head for features (B, K) of the method's own making.
    """

    source: View
    target: View | None
    heads: tuple[Head, ...]
    progress: float
    classify: Callable[[Tensor], tuple[Tensor, ...]]

    def both(self) -> tuple[View, View]:
        """Source and target, for a method that needs both."""
        if self.target is None:
            raise ValueError("the target was not forwarded")
        return self.source, self.target


@dataclass(frozen=True)
class Setting:
    """What a method is made for: K features, C classes, the width of a discriminator, and the run's settings."""

    dim: int
    classes: int
    hidden: int
    config: RunConfig


class Step(Protocol):
    """What an alternating method may do within one iteration; memories and schedules advance once, whatever it does."""

    extractor: nn.Module
    heads: nn.Module

    def forward(self) -> Outputs:
        """The batch of this iteration through the network as it is now."""

    def source(self, out: Outputs) -> dict[str, Tensor]:
        """The source term and mutual information."""

    def minimize(self, terms: dict[str, Tensor], only: Iterable[nn.Module] | None = None) -> None:
        """One optimizer step on the sum of the terms; with `only`, the parameters of all other modules stay."""


class Method(nn.Module):
    """A method of adaptation: named transfer terms on top of any source term.

    `terms` are their names, `paper` where they come from. `needs_target` says whether the target must be forwarded,
    `heads` how many heads the network has. What must survive a restart is a parameter or a persistent buffer.
    """

    terms: ClassVar[tuple[str, ...]] = ()
    paper: ClassVar[str] = ""
    needs_target: ClassVar[bool] = True
    heads: ClassVar[int] = 1

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """The transfer terms, each ready to be summed."""
        raise NotImplementedError(f"{type(self).__name__} has no losses")

    def update(self, step: Step) -> None:
        """One iteration. Methods that alternate between objectives override it; all others minimise one sum."""
        out = step.forward()
        step.minimize({**step.source(out), **self.losses(out)})

    def describe(self, out: Outputs) -> dict[str, float]:
        """What is worth logging beside the terms."""
        return {}

    def reversal(self, out: Outputs) -> float:
        """α of the reversed gradient, by progress or by iteration."""
        config = self.setting.config
        gain = 10.0 if config.reversal == "progress" else 10.0 * (config.steps or 0) / 10_000
        return reversal_coefficient(out.progress, gain)


METHODS: Registry[type[Method]] = Registry("method")
