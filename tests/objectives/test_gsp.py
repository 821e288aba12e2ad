"""GSP: which networks each round moves, its terms as written, batches without a match, and POT missing."""

import math

import pytest
import torch
from tests.configs import changed
from tests.objectives.phases import recorded, resumed, same, trainer_of
from tests.objectives.test_methods import B, C, made, outputs
from torch.nn import functional as F

from tsadapt.core import graph_coupling
from tsadapt.errors import UserError
from tsadapt.objectives.methods import gsp as module
from tsadapt.training.trainer import Iteration


@pytest.fixture
def gsp(config):
    """A step on the source, then seven of all rounds."""
    return changed(config, method="gsp", steps=8, pretraining=0.125)


def test_rounds_move_what_they_should(gsp, monkeypatch):
    trainer = trainer_of(gsp)
    seen = recorded(trainer, monkeypatch)
    for _ in range(2):
        trainer.step()
    source = ("tsa", "mi")
    a = (source, "", {"extractor", "heads", "source_half"})
    c = ((*source, "translated", "domain"), "", {"heads", "source_half"})
    d = ((*source, "translated", "alignment", "confusion", "target_entropy"), "", {"extractor"})
    assert seen == [a, a, c, d]


def example():
    net, out = outputs(heads=1, seed=3)
    method = made("gsp")
    out = method.seen(out)
    coupling = torch.rand(B, B, generator=torch.Generator().manual_seed(1))
    same_class = torch.rand(B, B, generator=torch.Generator().manual_seed(2)) < 0.5
    same_class[1] = False
    return net, method, out, coupling, same_class


def test_terms_as_written():
    """By the softmax over 2C, row by row; row 1 has no match."""
    net, method, out, coupling, same_class = example()
    source, target = out.both()
    y = out.labels()

    def halves(f):
        z = torch.cat([method.source_half(f), F.linear(f, net.heads[0].weight, net.heads[0].bias)])
        return z.softmax(0)[:C].sum(), z.softmax(0)[C:].sum(), z[:C], z[C:]

    told, swapped, translated, apart, counted = 0.0, 0.0, 0.0, 0.0, 0
    for i in range(B):
        p_s, p_t, *_ = halves(source.features[i])
        told, swapped = told - p_s.log() / B, swapped - p_t.log() / B
    copies = []
    for i in range(B):
        mass = coupling[i] * same_class[i]
        if mass.sum() > 0:
            counted += 1
            copies.append((i, (mass / mass.sum()) @ target.features))
    assert counted == B - 1
    for i, copy in copies:
        p_s, p_t, z_s, z_t = halves(copy)
        told, swapped = told - p_t.log() / counted, swapped - p_s.log() / counted
        translated = translated - (z_s.log_softmax(0)[y[i]] + z_t.log_softmax(0)[y[i]]) / counted
        apart = apart + (source.features[i] - copy).square().sum() / counted
    entropy = 0.0
    for f in target.features:
        for z in halves(f)[2:]:
            entropy = entropy - (z.softmax(0) * z.log_softmax(0)).sum() / B
    of_classifiers = method.of_classifiers(out, coupling, same_class)
    of_features = method.of_features(out, coupling, same_class)
    expected = {
        "translated": translated,
        "alignment": 0.01 * apart,
        "confusion": 0.01 * swapped,
        "target_entropy": 0.1 * entropy,
    }
    assert list(of_features) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(of_features[name], value)
    assert list(of_classifiers) == ["translated", "domain"]
    torch.testing.assert_close(of_classifiers["translated"], translated)
    torch.testing.assert_close(of_classifiers["domain"], told)


def test_halves_that_know_nothing():
    net, method, out, coupling, same_class = example()
    with torch.no_grad():
        for p in (*net.heads[0].parameters(), *method.source_half.parameters()):
            p.zero_()
    out = method.seen(outputs(heads=1, seed=3)[1].through(net.heads[0].weight, net.heads[0].bias))
    of_features = method.of_features(out, coupling, same_class)
    assert method.of_classifiers(out, coupling, same_class)["domain"].item() == pytest.approx(2 * math.log(2))
    assert of_features["confusion"].item() == pytest.approx(0.01 * 2 * math.log(2))
    assert of_features["translated"].item() == pytest.approx(2 * math.log(C))
    assert of_features["target_entropy"].item() == pytest.approx(0.1 * 2 * math.log(C))


def test_batches_without_a_match():
    _, method, out, coupling, _ = example()
    none = torch.zeros(B, B, dtype=torch.bool)
    terms = method.of_features(out, coupling, none)
    assert terms["translated"] == 0
    assert terms["alignment"] == 0
    grads = torch.autograd.grad(sum(terms.values()), [out.source.features, out.target.features])
    assert all(g.isfinite().all() for g in grads)
    assert method.of_classifiers(out, coupling, none)["domain"].isfinite()


def test_the_coupling_is_that_of_the_features_after_the_first_round(gsp, monkeypatch):
    trainer = trainer_of(gsp, steps=2)
    asked = []

    def watched(f_s, f_t):
        asked.append((f_s.detach().clone(), f_t.detach().clone()))
        return graph_coupling(f_s, f_t)

    monkeypatch.setattr(module, "graph_coupling", watched)
    seen, forward = [], Iteration.forward

    def forwarded(self, source_extractor=None):
        seen.append(forward(self, source_extractor))
        return seen[-1]

    monkeypatch.setattr(Iteration, "forward", forwarded)
    trainer.step()
    assert len(seen) == 3  # A, C, D
    for asked_for, view in zip(asked[0], seen[1].both(), strict=True):
        assert torch.equal(asked_for, view.features)


def test_both_classifiers_are_seen_and_the_targets_predicts(gsp):
    trainer = trainer_of(gsp, steps=3)
    out, _ = trainer.forward(trainer.batches.at(4), 0.5)
    seen = trainer.objective.method.seen(out)
    assert [head.weight for head in seen.heads] == [
        trainer.model.head.weight,
        trainer.objective.method.source_half.weight,
    ]
    value = trainer.objective.source_term(seen)
    (grad,) = torch.autograd.grad(value, out.source.features, retain_graph=True)
    through = sum(
        torch.autograd.grad(value, head.source.logits, retain_graph=True)[0] @ head.weight for head in seen.heads
    )
    torch.testing.assert_close(grad, through)  # all of it, unlike SymNets


@pytest.mark.parametrize("stop", [1, 3])
def test_resume(gsp, stop):
    whole = trainer_of(gsp, steps=stop)
    again = resumed(whole)
    for _ in range(3):
        assert whole.step(describe=True) == again.step(describe=True)
    assert same(again.model, whole.model.state_dict())
    assert same(again.objective, whole.objective.state_dict())


def test_pot_missing_is_one_clear_line(gsp, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^gsp needs the package POT: pip install 'tsadapt\[gsp\]'\.$"):
        trainer_of(gsp)
