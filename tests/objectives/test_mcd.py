"""MCD and SWD: three looks at a batch, each of which moves what it should and nothing else."""

from dataclasses import replace

import pytest
import torch
from tests.configs import changed

from tsadapt.core import random_directions, sliced_wasserstein
from tsadapt.training.setup import make_task, make_trainer
from tsadapt.training.trainer import Iteration


def parameters(module):
    return [p.detach().clone() for p in module.parameters()]


def moved(before, module):
    return [not torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True)]


@pytest.mark.parametrize("name", ["mcd", "swd"])
def test_phases(config, name, monkeypatch):
    trainer = make_trainer(make_task(changed(config, method=name, feature_steps=3)))
    trainer.fill_memory()
    phases, signs = [], []
    minimize = Iteration.minimize

    def watched(self, terms, only=None, phase=None):
        signs.extend(terms["discrepancy"].sign().item() for _ in range("discrepancy" in terms))
        heads, extractor = parameters(self.heads), parameters(self.extractor)
        minimize(self, terms, only, phase)
        phases.append((tuple(terms), any(moved(extractor, self.extractor)), any(moved(heads, self.heads))))

    monkeypatch.setattr(Iteration, "minimize", watched)
    trainer.step()
    source = ("tsa", "mi")
    assert phases == [
        (source, True, True),
        ((*source, "discrepancy"), False, True),
        *[(("discrepancy",), True, False)] * 3,
    ]
    assert signs == [-1, 1, 1, 1]  # the heads raise it, the features lower it


@pytest.mark.parametrize("name", ["mcd", "swd"])
def test_heads_spread_apart_and_features_bring_them_together(config, name):
    """Without the source, a step on B raises the discrepancy, and one on C lowers it."""
    trainer = make_trainer(make_task(changed(config, method=name, source_term="ce", mi=False, lr=0.2, momentum=0.0)))
    method, batch = trainer.objective.method, trainer.batches.at(1)
    trainer.model.eval()  # no dropout, no batch statistics: the same function twice

    def discrepancy():
        return float(method.discrepancy(trainer.forward(batch, 0.5)[0]).detach())

    step = Iteration(trainer, batch, describe=False)
    start = discrepancy()
    step.minimize({"discrepancy": -method.discrepancy(step.forward())}, only=[step.heads])
    apart = discrepancy()
    step.minimize({"discrepancy": method.discrepancy(step.forward())}, only=[step.extractor])
    assert start < apart
    assert discrepancy() < apart


def test_the_distances_written_out(config):
    """MCD's is a mean over rows and classes; both are zero for heads that agree."""
    names = ("mcd", "swd")
    trainers = {name: make_trainer(make_task(changed(config, method=name, directions=7))) for name in names}
    for name, trainer in trainers.items():
        method = trainer.objective.method
        out, _ = trainer.forward(trainer.batches.at(1), 0.5)
        p, q = (head.target.logits.softmax(1).tolist() for head in out.heads)
        if name == "mcd":
            expected = sum(abs(a - b) for x, y in zip(p, q, strict=True) for a, b in zip(x, y, strict=True))
            assert method.discrepancy(out).item() == pytest.approx(expected / (len(p) * len(p[0])), rel=1e-5)
        else:
            again, _ = trainer.forward(trainer.batches.at(1), 0.5)  # the directions are those of the step
            theta = random_directions(len(p[0]), 7, again.generator())
            assert method.discrepancy(out) == sliced_wasserstein(torch.tensor(p), torch.tensor(q), theta)
        alike = replace(out, heads=(out.heads[0], out.heads[0]))
        assert method.discrepancy(alike) == 0


def test_the_distance_is_between_zero_and_two_over_the_classes(config):
    trainer = make_trainer(make_task(changed(config, method="mcd")))
    out, _ = trainer.forward(trainer.batches.at(1), 0.5)
    d = trainer.objective.method.discrepancy(out).item()
    assert 0 < d < 2 / out.target.logits.shape[1]
