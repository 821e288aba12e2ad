"""T²SA: its formula, the head that it keeps, and what the network predicts by."""

import pytest
import torch
from tests.configs import changed
from tests.core import naive
from torch.nn import functional as F

from tsadapt.core import prototype_distance
from tsadapt.training.setup import make_task, make_trainer


def started(config, steps=0, **settings):
    config = changed(config, tsa=False, mi=True, source_term="t2sa", **settings)
    trainer = make_trainer(make_task(config))
    trainer.fill_memory()
    for _ in range(steps):
        trainer.step()
    return trainer


def written_out(out, margin, gamma, strength):
    """The loss with matrices, in float64, whatever the head's rows and bias are."""
    head = out.heads[0]
    w = head.weight.detach().double()
    w = w / w.norm(dim=1, keepdim=True)
    f, f_t, y = head.source.features.double(), head.target.features.double(), out.labels()
    source, target = (out.statistics(domain, "memory", 0) for domain in ("source", "target"))
    moments_s, moments_t = (
        naive.class_moments(m.features[m.labels < 3], m.labels[m.labels < 3], 3) for m in (source, target)
    )
    shift = moments_t.mean - moments_s.mean
    z = naive.transferable_logits(f @ w.T, y, w, shift, moments_t.covariance, strength)
    z = z - margin * F.one_hot(y, 3)
    variance = moments_t.covariance.diagonal(dim1=1, dim2=2).sum(1)
    guesses = out.target.logits.argmax(1)
    distance = prototype_distance(f, y, f_t, guesses, shift, variance, strength)
    return F.cross_entropy(z, y) + gamma * distance


@pytest.mark.parametrize("stretched", [False, True])
def test_equals_the_formula(config, stretched):
    trainer = started(config, 3, angular_margin=0.4, prototype_weight=0.02)
    if stretched:  # the term itself divides by the lengths, and leaves out the bias
        with torch.no_grad():
            trainer.model.head.weight *= torch.tensor([[0.5], [1.0], [3.0]])
            trainer.model.head.bias += torch.tensor([1.0, -2.0, 3.0])
    out, _ = trainer.forward(trainer.batches.at(4), 0.5)
    trainer.statistics.observe(out)
    loss = trainer.objective.source_term(out)
    torch.testing.assert_close(loss.double(), written_out(out, 0.4, 0.02, 0.125), rtol=1e-5, atol=1e-5)


def test_parts_that_are_off(config):
    trainer = started(config, 3, angular_margin=0.0, prototype_weight=0.0, mean_shift=False, covariance="none")
    out, _ = trainer.forward(trainer.batches.at(4), 0.5)
    trainer.statistics.observe(out)
    torch.testing.assert_close(
        trainer.objective.source_term(out), F.cross_entropy(out.source.logits, out.labels()), rtol=1e-5, atol=1e-5
    )
    trainer.objective.source_term.prototype_weight = 1.0
    guesses = out.target.logits.argmax(1)
    distance = prototype_distance(out.source.features, out.labels(), out.target.features, guesses)
    torch.testing.assert_close(
        trainer.objective.source_term(out), F.cross_entropy(out.source.logits, out.labels()) + distance
    )


@pytest.mark.parametrize("method", ["source-only", "dann", "jada", "mcd"])
def test_the_network_predicts_by_unit_rows_without_a_bias(config, method):
    trainer = started(config, 4, method=method)
    for layer in trainer.model.linear_layers:
        torch.testing.assert_close(layer.weight.norm(dim=1), torch.ones(3))
        assert (layer.bias == 0).all()
    before = started(config, 0, method=method)
    assert not torch.equal(before.model.head.weight, trainer.model.head.weight)  # they do learn
    torch.testing.assert_close(before.model.head.weight.norm(dim=1), torch.ones(3))


def test_the_prototype_constraint_pulls_both_domains(config):
    trainer = started(config, 3, lambda0=0.0, beta=0.0)
    out, features = trainer.forward(trainer.batches.at(4), 0.5)
    trainer.statistics.observe(out)
    trainer.objective.source_term.prototype_weight = 1.0
    rows = len(out.source.index)
    (grad,) = torch.autograd.grad(trainer.objective.source_term(out), features[0])
    assert grad[:rows].abs().sum() > 0
    assert grad[rows:].abs().sum() > 0


def test_rows_of_zero_length_and_far_features_stay_finite(config):
    trainer = started(config, 1)
    with torch.no_grad():
        trainer.model.head.weight[0] = 0
        trainer.model.head.weight[1] *= 1e4
    out, _ = trainer.forward(trainer.batches.at(2), 0.5)
    trainer.statistics.observe(out)
    loss = trainer.objective.source_term(out)
    assert loss.isfinite()
    assert all(g.isfinite().all() for g in torch.autograd.grad(loss, [trainer.model.head.weight, out.extracted[0]]))
