"""What methods have in common that classify by two halves: the network's head for the target, their own for the source.

Shapes: B samples of a domain, K features, C classes.
"""

from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from tsadapt.core import reverse_gradient
from tsadapt.objectives.base import Context, Head, Method, Outputs, View

__all__ = ["TwoHalves"]


class TwoHalves(Method):
    """A method with a second linear head of its own on the network's features.

    The network's head is the target's half and predicts, so a trained network needs no method. All terms see both, as
    two heads on one set of features, which share one memory. `source_pull` is how much of the source term's gradient
    the features get; the heads get all of it.
    """

    source_pull: ClassVar[float] = 1.0

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        self.source_half = nn.Linear(context.dim, len(context.classes))

    def seen(self, out: Outputs) -> Outputs:
        """Both halves as two heads, the one that predicts first."""
        (target_half,) = out.heads
        weights = ((target_half.weight, target_half.bias), (self.source_half.weight, self.source_half.bias))
        pulled = reverse_gradient(out.source.features, -self.source_pull)  # times source_pull, that is

        def view(of: View, features: Tensor, weight: Tensor, bias: Tensor | None) -> View:
            return replace(of, features=features, logits=F.linear(features, weight, bias))

        def head(weight: Tensor, bias: Tensor | None) -> Head:
            target = None if out.target is None else view(out.target, out.target.features, weight, bias)
            return Head(view(out.source, pulled, weight, bias), target, weight, bias)

        return replace(
            out,
            heads=tuple(head(*one) for one in weights),
            classify=lambda f: tuple(F.linear(f, w, b) for w, b in weights),
            statistics=lambda domain, estimator, head: out.statistics(domain, estimator, 0),
        )
