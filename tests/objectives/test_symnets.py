"""SymNets: the gradients of both sides as the published losses give them, and TSA in place of the cross-entropy."""

import math
from dataclasses import replace

import pytest
import torch
from tests.configs import changed
from tests.objectives.phases import resumed, same, trainer_of
from tests.objectives.test_methods import C, K, made, outputs
from torch.nn import functional as F

from tsadapt.core import reversal_coefficient


def symnets(progress=0.3):
    """A method, its outputs as all terms see them, and what gradients are taken of."""
    net, out = outputs(progress=progress, heads=1)
    method = made("symnets")
    heads = [net.heads[0].weight, net.heads[0].bias, method.source_half.weight, method.source_half.bias]
    return method, method.seen(out), heads


def written(out, method, heads):
    """The loss of the heads and that of the features, by the softmax over 2C (source half first)."""
    w_t, b_t, w_s, b_s = heads
    source, target = out.both()
    z_s, z_t = (
        torch.cat([F.linear(v.features, w_s, b_s), F.linear(v.features, w_t, b_t)], 1) for v in (source, target)
    )
    y = out.labels()
    p_s, p_t = z_s.softmax(1), z_t.softmax(1)
    of_heads = F.cross_entropy(z_s[:, :C], y) + F.cross_entropy(z_s[:, C:], y)
    of_heads = of_heads - p_s[:, :C].sum(1).log().mean() - p_t[:, C:].sum(1).log().mean()
    q = p_t[:, :C] + p_t[:, C:]
    lam = reversal_coefficient(out.progress)
    of_features = 0.5 * F.cross_entropy(z_s, y) + 0.5 * F.cross_entropy(z_s, y + C)
    confused = -0.5 * (p_t[:, :C].sum(1).log().mean() + p_t[:, C:].sum(1).log().mean())
    return of_heads, of_features + lam * (confused - (q * q.log()).sum(1).mean())


def cross_entropy(out):
    return sum(F.cross_entropy(head.source.logits, out.labels()) for head in out.heads)


def test_one_pass_gives_both_sides_the_gradients_of_their_own_losses():
    method, out, heads = symnets()
    features = [view.features for view in out.both()]
    total = cross_entropy(out) + sum(method.losses(out).values())
    of_heads, of_features = written(out, method, heads)
    for ours, theirs in ((heads, of_heads), (features, of_features)):
        expected = torch.autograd.grad(theirs, ours, retain_graph=True)
        for a, b in zip(torch.autograd.grad(total, ours, retain_graph=True), expected, strict=True):
            assert b.abs().sum() > 0
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("term", "side"), [("domain", "heads"), ("confusion", "features"), ("joint_entropy", "features")]
)
def test_each_term_moves_one_side_alone(term, side):
    method, out, heads = symnets()
    features = [out.target.features] if term == "joint_entropy" else [view.features for view in out.both()]
    loss = method.losses(out)[term]
    grads = {
        "heads": torch.autograd.grad(loss, heads, retain_graph=True, allow_unused=True),
        "features": torch.autograd.grad(loss, features, retain_graph=True, allow_unused=True),
    }
    assert all(g is not None and g.abs().sum() > 0 for g in grads.pop(side))
    assert all(g is None for (rest,) in [grads.values()] for g in rest)


def test_halves_that_know_nothing():
    method, out, heads = symnets(progress=1.0)
    with torch.no_grad():
        for p in heads:
            p.zero_()
    lam = reversal_coefficient(1.0)
    losses = {name: value.item() for name, value in method.losses(out).items()}
    assert losses["domain"] == pytest.approx(2 * math.log(2))
    assert losses["confusion"] == pytest.approx((1 + lam) * math.log(2))
    assert losses["joint_entropy"] == pytest.approx(lam * math.log(C))
    assert method.describe(out) == {"alpha": lam}


def test_at_the_start_the_target_leaves_the_features_alone():
    method, out, _ = symnets(progress=0.0)
    (grad,) = torch.autograd.grad(sum(method.losses(out).values()), out.target.features)
    assert (grad == 0).all()


def test_all_terms_see_two_heads_with_one_memory():
    asked = []
    net, out = outputs(heads=1)
    method = made("symnets")
    seen = method.seen(replace(out, statistics=lambda *which: asked.append(which)))
    assert [head.weight for head in seen.heads] == [net.heads[0].weight, method.source_half.weight]
    for i in range(2):
        seen.statistics("target", "memory", i)
    assert asked == [("target", "memory", 0)] * 2
    f = torch.randn(4, K)
    for given, head in zip(seen.classify(f), seen.heads, strict=True):
        assert torch.equal(given, F.linear(f, head.weight, head.bias))
        for view, plain in ((head.source, out.source), (head.target, out.target)):
            assert torch.equal(view.features, plain.features)
            assert torch.equal(view.logits, F.linear(plain.features, head.weight, head.bias))


def test_tsa_augments_both_halves(config):
    """Each half's L_∞ with its own weights; the features get half of its gradient, as of the cross-entropy."""
    trainer = trainer_of(changed(config, method="symnets", mi=False), steps=3)
    out, _ = trainer.forward(trainer.batches.at(4), 0.5)
    trainer.statistics.observe(out)
    seen = trainer.objective.method.seen(out)
    value = trainer.objective.source_term(seen)
    each = [trainer.objective.source_term.of_head(i, head, seen) for i, head in enumerate(seen.heads)]
    torch.testing.assert_close(value, sum(each))
    assert value > F.cross_entropy(seen.heads[0].source.logits, out.labels())
    whole = [seen.heads[i].source.logits for i in range(2)]
    assert not torch.equal(*whole)
    (half,) = torch.autograd.grad(value, out.source.features, retain_graph=True)
    assert half.abs().sum() > 0
    through = sum(
        torch.autograd.grad(value, head.source.logits, retain_graph=True)[0] @ head.weight for head in seen.heads
    )
    torch.testing.assert_close(half, 0.5 * through)


def test_the_target_half_predicts_and_a_run_resumes(config):
    config = changed(config, method="symnets")
    whole = trainer_of(config, steps=4)
    assert set(whole.step(describe=True)) >= {"tsa", "mi", "domain", "confusion", "joint_entropy", "alpha"}
    again = resumed(whole)
    a, b = whole.step(), again.step()
    assert a == b
    assert same(again.objective, whole.objective.state_dict())
    out, _ = whole.forward(whole.batches.at(6), 0.5)
    seen = whole.objective.method.seen(out)
    torch.testing.assert_close(seen.heads[0].target.logits, out.target.logits)
    assert seen.heads[0].weight is whole.model.head.weight
