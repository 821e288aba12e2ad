"""One iteration of a training, as a method sees it: forward, source term, minimise (`methods.base.Step`)."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tsadapt.data.types import Batch
from tsadapt.objectives.methods import Outputs

if TYPE_CHECKING:
    from tsadapt.training.trainer import Training

__all__ = ["Iteration", "NotFiniteError"]


class NotFiniteError(Exception):
    """A term of the objective is not finite."""

    def __init__(self, term: str, value: float, step: int) -> None:
        super().__init__(f"The term {term!r} is {value} at step {step}.")
        self.term, self.step = term, step


class Iteration:
    """What happens in one iteration: `values` of the terms minimised, and the last outputs.

    With `describe`, `gradient_share` says how much of the gradient at the features comes from each term.
    """

    def __init__(self, training: "Training", batch: Batch, describe: bool) -> None:
        self._training, self._batch, self._describe = training, batch, describe
        self.extractor: nn.Module = training.extractor
        self.heads: nn.Module = training.heads
        self.values: dict[str, float] = {}
        self.gradient_share: dict[str, float] = {}
        self.out: Outputs | None = None

    def forward(self) -> Outputs:
        """The batch through the network as it is now; the memories take it in the first time."""
        first, training = self.out is None, self._training
        self.out = training.forward(self._batch, training.progress)
        if first:
            training.source_term.observe(self.out)
        return self.out

    def source(self, out: Outputs) -> dict[str, Tensor]:
        """The source term and mutual information, by name."""
        return self._training.source(out)

    def minimize(self, terms: dict[str, Tensor], only: Iterable[nn.Module] | None = None) -> None:
        """One optimizer step on the sum of the terms, each times its weight; with `only`, all other parameters stay."""
        training = self._training
        terms = {name: training.weighted(name, term) for name, term in terms.items() if training.weight(name)}
        if not terms:  # all of this phase are turned off
            return
        values = {name: float(term.detach()) for name, term in terms.items()}
        for name, value in values.items():
            if not math.isfinite(value):
                raise NotFiniteError(name, value, training.at)
        self.values |= values
        if self._describe:
            self.gradient_share |= _shares(terms, training.seen)
        training.optimizer.zero_grad()
        inputs: Any = None if only is None else [p for module in only for p in module.parameters()]
        torch.stack([*terms.values()]).sum().backward(inputs=inputs)  # type: ignore[no-untyped-call]
        training.optimizer.step()


def _shares(terms: dict[str, Tensor], features: list[Tensor]) -> dict[str, float]:
    """How much each term pulls at the features: the norms of its gradients there, as shares of their sum."""
    norms = {}
    for name, term in terms.items():
        grads = torch.autograd.grad(term, features, retain_graph=True, allow_unused=True)
        norms[name] = math.sqrt(sum(float(g.square().sum()) for g in grads if g is not None))
    total = sum(norms.values())
    return {name: round(norm / total, 4) if total > 0 else 0.0 for name, norm in norms.items()}
