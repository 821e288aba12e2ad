"""GSP: target features translated to the source's by matching the two batches as graphs, and a classifier of each."""

from importlib.util import find_spec
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from tsadapt.core import conditional_entropy, graph_coupling, half_logit, translation
from tsadapt.errors import UserError
from tsadapt.objectives.base import METHODS, Context, Outputs, Step
from tsadapt.objectives.methods.pretrained import Pretrained
from tsadapt.objectives.methods.two_halves import TwoHalves

__all__ = ["GSP"]

ALIGNMENT, ENTROPY = 0.01, 0.1
"""λ_1 and λ_2, as published; `--term-weight alignment=…` and the like multiply a term."""


@METHODS.register("gsp")
class GSP(Pretrained, TwoHalves):
    """Structure-preserving translation: source rows get a copy made of the target rows that match them in a graph.

    T couples the two batches as graphs of similar rows (Gromov–Wasserstein), and f̂_s = T̂ f_t is what it makes of the
    target for each source row: the mean of the matched target rows that are predicted as its class. After the
    pretraining, every batch is seen three times:

        (A) everything learns the source term and target terms, and T is found from the features
        (C) both classifiers learn the source term, CE(f̂_s, y_s), and to tell f_s from f̂_s: −log P_s(f_s) − log P_t(f̂_s)
        (D) the features learn the source term, CE(f̂_s, y_s), λ_1 ‖f_s − f̂_s‖², λ_1 (−log P_t(f_s) − log P_s(f̂_s)), and
            λ_2 times the entropy of both classifiers on the target

    P_s and P_t are the halves of the softmax over 2C, as in SymNets. The target's classifier is the network's head and
    predicts. Distances are means over rows; source rows without a match count in none of the terms of f̂_s.
    """

    paper = "Xia and Ding, CVPR 2020"
    terms = ("translated", "domain", "alignment", "confusion", "target_entropy")
    usual_pretraining = 0.2
    descends = True
    needs_package = "POT (extra: gsp)"
    cost = "three passes, and a transport problem on the CPU"
    practice = """It assumes that rows lie to each other in the target as they do in the source, and that most
    predictions of the target are right: only target rows predicted as a source row's class become part of its copy, so
    a class that is never predicted is never translated. It helps where the domains differ and the neighbourhoods do
    not. It hurts with wrong predictions, which it takes for labels, and needs batches in which most classes occur in
    both domains."""

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        if find_spec("ot") is None:
            raise UserError("gsp needs the package POT: pip install 'tsadapt[gsp]'.")

    def update(self, step: Step) -> None:
        """Rounds A, (B: the coupling,) C and D."""
        step.descend()
        if self.pretrains(step.progress):
            return
        out = step.forward()
        source, target = out.both()
        coupling = graph_coupling(source.features, target.features)
        same_class = out.labels()[:, None] == target.logits.argmax(1)
        step.descend(
            lambda out: self.of_classifiers(out, coupling, same_class), only=[step.heads, self.source_half], out=out
        )
        step.descend(lambda out: self.of_features(out, coupling, same_class), only=[step.extractor])

    def of_classifiers(self, out: Outputs, coupling: Tensor, same_class: Tensor) -> dict[str, Tensor]:
        """What the classifiers minimise in C beside the source term."""
        copy, matched = translation(coupling, same_class, out.both()[1].features)
        d_s, d_copy = self._half_logit(out, out.source.features), self._half_logit(out, copy)
        domain = F.softplus(-d_s).mean() + _mean(F.softplus(d_copy), matched)
        return {"translated": self._translated(out, copy, matched), "domain": domain}

    def of_features(self, out: Outputs, coupling: Tensor, same_class: Tensor) -> dict[str, Tensor]:
        """What the features minimise in D beside the source term."""
        source, target = out.both()
        copy, matched = translation(coupling, same_class, target.features)
        d_s, d_copy = self._half_logit(out, source.features), self._half_logit(out, copy)
        swapped = F.softplus(d_s).mean() + _mean(F.softplus(-d_copy), matched)
        entropies = [conditional_entropy(logits) for logits in out.classify(target.features)]
        return {
            "translated": self._translated(out, copy, matched),
            "alignment": ALIGNMENT * _mean((source.features - copy).square().sum(1), matched),
            "confusion": ALIGNMENT * swapped,
            "target_entropy": ENTROPY * (entropies[0] + entropies[1]),
        }

    @staticmethod
    def _half_logit(out: Outputs, features: Tensor) -> Tensor:
        of_target, of_source = out.classify(features)
        return half_logit(of_source, of_target)

    @staticmethod
    def _translated(out: Outputs, copy: Tensor, matched: Tensor) -> Tensor:
        """The cross-entropies of both classifiers on the copies, with the labels of the source."""
        each = [F.cross_entropy(logits, out.labels(), reduction="none") for logits in out.classify(copy)]
        return _mean(each[0] + each[1], matched)


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    """The mean of the values (B,) that count; zero if none does."""
    return (values * counted).sum() / counted.sum().clamp_min(1)
