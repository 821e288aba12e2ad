"""TAT: where the copies go, what each term teaches and whom, and that the discriminator never reaches the network."""

import math
from dataclasses import replace

import pytest
import torch
from tests.configs import changed
from tests.objectives.phases import parts, trainer_of
from tests.objectives.test_alignment import gradients, one_head
from tests.objectives.test_methods import B, C, K, made
from torch import nn
from torch.nn import functional as F

from tsadapt.core import climb, domain_loss


class Plane(nn.Module):
    """A discriminator whose logit is v·f."""

    def __init__(self, v):
        super().__init__()
        self.v = nn.Parameter(v)

    def forward(self, f):
        return f @ self.v


def tat(v=None, dtype=torch.float32, **settings):
    """A method and outputs of one head; D is a plane, if its v is given."""
    head, out = one_head()
    method = made("tat", **settings)
    if v is not None:
        method.discriminator = Plane(v)
    if dtype is torch.float64:
        method = method.double()
        source, target = (
            replace(view, features=view.features.detach().double().requires_grad_()) for view in out.both()
        )
        weight, bias = (p.detach().double().requires_grad_() for p in (head.weight, head.bias))
        one = replace(out.heads[0], source=source, target=target, weight=weight, bias=bias)
        out = replace(out, source=source, target=target, heads=(one,))
    return method, out


def test_one_step_by_hand():
    v = torch.linspace(-1, 1, K)
    method, out = tat(v, climbing_steps=1)
    moved_s, moved_t = method.moves(out)
    w, b = (p.detach() for p in (out.heads[0].weight, out.heads[0].bias))
    for i in range(B):
        f_s, f_t = out.source.features[i].detach(), out.target.features[i].detach()
        sigma = 1 / (1 + math.exp(-float(f_t @ v)))
        torch.testing.assert_close(moved_t[i], 2 * sigma * v)  # ∇ log(1 + e^d), and the spring is loose at first
        away = -2 / (1 + math.exp(float(f_s @ v))) * v
        wrong = (w @ (f_s + away) + b).softmax(0)
        wrong[out.labels()[i]] -= 1
        torch.testing.assert_close(moved_s[i], away + 3 * (wrong @ w - 0.2 * away))


def test_the_terms_written_out():
    """Row by row, with the copies of a climb of its own."""
    v = torch.linspace(-1, 1, K, dtype=torch.float64)
    method, out = tat(v, torch.float64, climbing_steps=4)
    w, b = (p.detach() for p in (out.heads[0].weight, out.heads[0].bias))

    def climbed(start, home, rate, slope):
        f = start
        for _ in range(4):
            f = f + rate * (slope(f) - 0.2 * (f - home))
        return f

    domain = copies = consistency = entropy = 0.0
    for i in range(B):
        f_s, f_t, y = out.source.features[i].detach(), out.target.features[i].detach(), int(out.labels()[i])
        like_t = climbed(f_s, f_s, 2, lambda f: -torch.sigmoid(-f @ v) * v)
        hard = climbed(like_t, f_s, 3, lambda f, y=y: ((w @ f + b).softmax(0) - F.one_hot(torch.tensor(y), C)) @ w)
        like_s = climbed(f_t, f_t, 2, lambda f: torch.sigmoid(f @ v) * v)
        p, q = (w @ f_t + b).softmax(0), (w @ like_s + b).softmax(0)
        domain -= 0.5 * (torch.sigmoid(f_s @ v).log() + torch.sigmoid(-f_t @ v).log()) / B
        copies -= (w @ hard + b).log_softmax(0)[y] / B
        consistency += ((p - q) ** 2).sum()  # over the batch, not its mean
        entropy -= 0.1 * (p * p.log()).sum() / B
    expected = {"domain": domain, "copies": copies, "consistency": consistency, "target_entropy": entropy}
    losses = method.losses(out)
    assert tuple(losses) == method.terms
    for name, value in expected.items():
        torch.testing.assert_close(losses[name], value, msg=name)
    assert consistency > 1e-3


def test_copies_fool_the_discriminator_and_the_classifier():
    method, out = tat(torch.linspace(-1, 1, K))
    moved_s, moved_t = method.moves(out)
    f_s, f_t = (view.features.detach() for view in out.both())
    d = method.discriminator
    assert (d(f_t + moved_t) > d(f_t)).all()  # more like the source
    weight, bias = out.heads[0].weight, out.heads[0].bias
    z, z_hard = F.linear(f_s, weight, bias), F.linear(f_s + moved_s, weight, bias)
    before, after = (F.cross_entropy(logits, out.labels(), reduction="none") for logits in (z, z_hard))
    assert (after > before).all()


def test_what_is_left_of_the_first_climb_of_the_source():
    """A head that knows nothing has no slope: the spring takes the copies back, by 0.4 a step, as published."""
    method, out = tat(torch.linspace(-1, 1, K), climbing_steps=3)
    nn.init.zeros_(out.heads[0].weight)
    d, f_s = method.discriminator, out.source.features.detach()
    like_target = climb(f_s, lambda f: F.softplus(-d(f)).sum(), 3, 2.0, spring=0.1, anchor=f_s)
    assert (d(like_target) < d(f_s)).all()  # less like the source
    torch.testing.assert_close(method.moves(out)[0], 0.4**3 * (like_target - f_s))


def test_what_each_term_reaches():
    method, out = tat()
    losses = method.losses(out)
    f_s, f_t = (view.features for view in out.both())
    w, d = out.heads[0].weight, [*method.discriminator.parameters()]
    reached = {
        "domain": d,
        "copies": [f_s, w],
        "consistency": [f_t, w],
        "target_entropy": [f_t, w],
    }
    for name, loss in losses.items():
        assert all(grad is not None and grad.abs().sum() > 0 for grad in gradients(loss, reached[name])), name
        rest = [x for x in (f_s, f_t, w, *d) if all(x is not y for y in reached[name])]
        assert all(grad is None for grad in gradients(loss, rest)), name


def test_gradients_with_the_copies_as_constants():
    v = torch.linspace(-1, 1, K, dtype=torch.float64)
    method, out = tat(v, torch.float64)
    still = method.moves(out)
    method.moves = lambda out: still
    f_s, f_t = (view.features for view in out.both())
    head = out.heads[0]

    def losses(f_s, f_t, weight, bias):
        source, target = replace(out.source, features=f_s), replace(out.target, features=f_t)
        one = replace(head, source=source, target=target, weight=weight, bias=bias)
        found = method.losses(replace(out, source=source, target=target, heads=(one,)))
        return tuple(found[name] for name in ("copies", "consistency", "target_entropy"))

    assert torch.autograd.gradcheck(losses, (f_s, f_t, head.weight, head.bias))


def test_a_discriminator_that_knows_nothing_leaves_the_target_alone():
    method, out = tat()
    nn.init.zeros_(method.discriminator.layers[-1].weight)
    moved_s, moved_t = method.moves(out)
    assert (moved_t == 0).all()
    assert (moved_s != 0).any()  # the classifier has its say
    losses = method.losses(out)
    assert losses["consistency"] == 0
    assert method.describe(out)["copy_distance"] == 0


def test_a_row_goes_its_way_whatever_the_batch():
    """Neither order nor company matters, and dropout has no part: the discriminator goes on in training."""
    method, out = tat(climbing_steps=5)
    moved = method.moves(out)
    assert all(torch.equal(a, b) for a, b in zip(moved, method.moves(out), strict=True))
    assert method.discriminator.training
    order = torch.tensor([3, 1])
    source, target = (replace(view, features=view.features[order], index=view.index[order]) for view in out.both())
    source = replace(source, labels=out.labels()[order])
    for part, whole in zip(method.moves(replace(out, source=source, target=target)), moved, strict=True):
        torch.testing.assert_close(part, whole[order])


@pytest.mark.parametrize("size", [1e4, 1e15])
def test_sure_logits_and_one_row_stay_finite(size):
    method, out = tat()
    with torch.no_grad():
        out.heads[0].weight.mul_(size)
    source, target = (
        replace(view, features=view.features[:1].detach().requires_grad_(), index=view.index[:1]) for view in out.both()
    )
    source = replace(source, labels=out.labels()[:1])
    out = replace(out, source=source, target=target)
    losses = method.losses(out)
    assert all(value.isfinite() for value in losses.values())
    reached = [source.features, target.features, out.heads[0].weight]
    assert all(grad is None or grad.isfinite().all() for grad in gradients(sum(losses.values()), reached))


def test_the_discriminator_learns_beside_the_network_and_never_feeds_it(config):
    """Without the other terms of TAT the network goes where the source term and target terms take it."""
    off = {"copies": 0.0, "consistency": 0.0, "target_entropy": 0.0}
    trainer = trainer_of(changed(config, method="tat", term_weight=off))
    alone = trainer_of(changed(config, method="tat", term_weight={**off, "domain": 0.0}))
    before = [p.detach().clone() for p in parts(trainer)["discriminator"]]
    for _ in range(3):
        trainer.step(), alone.step()
    for part in ("extractor", "heads"):
        assert all(torch.equal(a, b) for a, b in zip(parts(trainer)[part], parts(alone)[part], strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(before, parts(trainer)["discriminator"], strict=True))


def test_smoothing_and_what_is_logged(config):
    method, out = tat(torch.linspace(-1, 1, K), domain_smoothing=0.2)
    d = method.discriminator(method.mapped(out)).split(B)
    torch.testing.assert_close(method.losses(out)["domain"], domain_loss(*d, smoothing=0.2))
    said = trainer_of(changed(config, method="tat")).step(describe=True)
    assert said["copy_distance"] > 0
    assert 0 <= said["discriminator_accuracy"] <= 1
