"""MCD and SWD: two classifiers find target samples that the source does not support, and the features move them."""

from torch import Tensor
from torch.nn import functional as F

from tsadapt.core import random_directions, sliced_wasserstein
from tsadapt.objectives.base import METHODS, Method, Outputs, Step
from tsadapt.settings import setting

__all__ = ["MCD", "SWD"]


@METHODS.register("mcd")
class MCD(Method):
    """Maximum classifier discrepancy: two heads spread apart on the target, and the features bring them together.

    Each step sees one batch three times: (A) everything learns the source; (B) the heads alone learn the source and
    spread apart on the target; (C) the features alone bring the heads together, `feature_steps` times.

        d = mean |softmax C_1(f_t) − softmax C_2(f_t)|,   over B·C entries
    """

    paper = "Saito et al., CVPR 2018"
    terms = ("discrepancy",)
    heads = 2
    descends = True
    cost = "two passes and one for each of `feature_steps`: six; the second for the heads alone"
    practice = """It assumes that two classifiers that agree on the source disagree on target rows far from it, and
    moves those rows to where they agree. It looks at the borders between classes and not at the domains as a whole, so
    it does not force the domains' class shares to agree. It cannot move rows on which both classifiers are sure and
    wrong. The disagreement is a mean over all classes and shrinks with their number: raise it with many of them
    (`--term-weight discrepancy=10`)."""

    feature_steps: int = setting(4, "Steps of the features for one of the heads.", above=0, at_most=1000)

    def discrepancy(self, out: Outputs) -> Tensor:
        """D of the target batch."""
        p_1, p_2 = _probabilities(out)
        return (p_1 - p_2).abs().mean()

    def update(self, step: Step) -> None:
        """Phases A, B and C."""
        step.descend()
        step.descend(lambda out: {"discrepancy": -self.discrepancy(out)}, only=[step.heads])
        for _ in range(self.feature_steps):
            step.minimize({"discrepancy": self.discrepancy(step.forward())}, only=[step.extractor])


@METHODS.register("swd")
class SWD(MCD):
    """MCD with another distance of the two heads: the sliced Wasserstein distance of their sets of predictions."""

    paper = "Lee et al., CVPR 2019"
    practice = """It assumes what `mcd` does, and compares the predictions of the two heads as sets: rows that exchange
    their predictions do not count. That gives a smoother pull between predictions that do not overlap. It says less of
    each single row, so it needs batches in which most classes occur."""

    directions: int = setting(128, "Random directions that predictions are projected on.", above=0, at_most=100_000)

    def discrepancy(self, out: Outputs) -> Tensor:
        """The distance in random directions, the same in all phases of a step."""
        p_1, p_2 = _probabilities(out)
        return sliced_wasserstein(p_1, p_2, random_directions(p_1.shape[1], self.directions, out.generator()))


def _probabilities(out: Outputs) -> tuple[Tensor, Tensor]:
    p_1, p_2 = (F.softmax(head.target.logits, dim=1) for head in out.heads if head.target is not None)
    return p_1, p_2
