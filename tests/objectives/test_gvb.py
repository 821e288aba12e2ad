"""GVB: the two bridges, what reaches them, and the weights that are left to predict."""

import math
from dataclasses import replace

import pytest
import torch
from tests.configs import changed
from tests.objectives.test_alignment import gradients, one_head
from tests.objectives.test_methods import B, C, K, made
from torch import nn

from tsadapt.core import certainty_weights, reversal_coefficient
from tsadapt.training.setup import make_task, make_trainer


def test_numbers_of_pytorch_adapt():
    """ModelWithBridge, AbsLoss and EntropyWeights of pytorch-adapt 0.0.83, whose weights are 1 + exp(−H)."""
    a = torch.arange(24, dtype=torch.float64)
    f_s, f_t = torch.sin(a).reshape(4, 6), torch.cos(1.7 * a[:18]).reshape(3, 6) + 0.3
    w, v = torch.cos(0.2 * a[:18]).reshape(3, 6), 0.3 * torch.sin(0.5 * a[:18]).reshape(3, 6)
    method = made("gvb").double()
    method.bridge.load_state_dict({"weight": v, "bias": torch.zeros(3)})
    _, out = one_head()
    source, target = (replace(view, features=f) for view, f in zip(out.both(), (f_s, f_t), strict=True))
    head = replace(out.heads[0], source=source, target=target, weight=w, bias=torch.zeros(3, dtype=torch.float64))
    seen = method.seen(replace(out, source=source, target=target, heads=(head,)))
    expected = torch.tensor([0.719122409891174, 0.8793792281860193, 0.1461791454780231], dtype=torch.float64)
    torch.testing.assert_close(seen.source.logits[0], expected)
    assert method._bridged(seen).abs().mean().item() == pytest.approx(0.22971583818536795, rel=1e-12)
    weights = 1 + certainty_weights(seen.source.logits, base=0.0)
    expected = [0.24841250305411441, 0.24979675968880707, 0.25074969519269075, 0.2510410420643878]
    torch.testing.assert_close(weights / weights.sum(), torch.tensor(expected, dtype=torch.float64))


def test_the_terms_written_out():
    head, out = one_head()
    method = made("gvb").eval()
    out = method.seen(out)
    losses = method.losses(out)
    v, layers = method.bridge, method.discriminator.layers
    total, bridges = 0.0, []
    for view, sign in zip(out.both(), (1, -1), strict=True):
        weight, loss = [], []
        for f in view.features:
            z = head.weight @ f + head.bias - (v.weight @ f + v.bias)
            p = z.softmax(0)
            weight.append(math.exp(sum(q * math.log(q) for q in p.tolist())))
            hidden = layers[:-1](p)
            d = layers[-1](hidden) - method.discriminator.bridge(hidden)
            loss.append(-math.log(float(torch.sigmoid(sign * d.detach()))))
            bridges.append(float(method.discriminator.bridge(hidden).detach()))
        total += 0.5 * sum(w * x for w, x in zip(weight, loss, strict=True)) / sum(weight)
    assert losses["domain"].item() == pytest.approx(total, rel=1e-5)
    assert losses["discriminator_bridge"].item() == pytest.approx(sum(map(abs, bridges)) / (2 * B), rel=1e-5)
    bridged = torch.stack([v.weight @ f + v.bias for view in out.both() for f in view.features])
    torch.testing.assert_close(losses["bridge"], bridged.abs().sum() / (2 * B * C))
    assert losses.keys() == set(method.terms)


def test_the_head_and_its_bridge_learn_opposite_things_from_predictions():
    head, out = one_head()
    method = made("gvb")
    seen = method.seen(out)
    for view, plain in zip(seen.both(), out.both(), strict=True):
        torch.testing.assert_close(view.logits, plain.logits - method.bridge(plain.features))
    assert seen.heads[0].source is seen.source
    loss = nn.functional.cross_entropy(seen.source.logits, out.labels())
    for one, other in [(head.weight, method.bridge.weight), (head.bias, method.bridge.bias)]:
        g_head, g_bridge = gradients(loss, [one, other])
        assert g_head.abs().sum() > 0
        assert torch.equal(g_head, -g_bridge)
    again = seen.classify(out.target.features)
    assert torch.equal(again[0], seen.target.logits)
    assert torch.equal(seen.network(out.inputs[0])[1], seen.source.logits)


def test_what_each_term_reaches():
    head, out = one_head()
    method = made("gvb").eval()
    losses = method.losses(method.seen(out))
    f_s, f_t = (view.features for view in out.both())
    d = method.discriminator
    alpha = reversal_coefficient(0.4)
    reached = {
        "bridge": [f_s, f_t, method.bridge.weight],
        "discriminator_bridge": [f_s, head.weight, method.bridge.weight, d.layers[0].weight, d.bridge.weight],
        "domain": [f_s, f_t, head.weight, method.bridge.weight, d.layers[-1].weight, d.bridge.weight],
    }
    left = {
        "bridge": [head.weight, *d.parameters()],
        "discriminator_bridge": [d.layers[-1].weight],
        "domain": [],
    }
    for name, loss in losses.items():
        assert all(grad is not None and grad.abs().sum() > 0 for grad in gradients(loss, reached[name])), name
        assert not left[name] or all(grad is None for grad in gradients(loss, left[name])), name
    # The head's bridge shrinks by its own gradient, that of the discriminator reaches predictions reversed.
    (turned,) = gradients(losses["discriminator_bridge"], [head.weight])
    straight = d.both(method.mapped(method.seen(out)))[1].abs().mean()
    (plain,) = gradients(straight, [head.weight])
    torch.testing.assert_close(turned, -alpha * plain)


def test_at_the_start_predictions_learn_nothing_from_the_discriminator():
    head, out = one_head(progress=0.0)
    method = made("gvb").eval()
    losses = method.losses(method.seen(out))
    for name in ("domain", "discriminator_bridge"):
        for grad in gradients(losses[name], [out.source.features, head.weight, method.bridge.weight]):
            assert (grad == 0).all()
        assert gradients(losses[name], [method.discriminator.bridge.weight])[0].abs().sum() > 0


def test_the_weights_of_rows_pass_a_reversed_gradient():
    """What is left when the discriminator takes its inputs as constants."""
    head, out = one_head()
    method = made("gvb").eval()
    method.mapped = lambda out: torch.cat([view.logits.detach().softmax(1) for view in out.both()])
    seen = method.seen(out)
    (turned,) = gradients(method.losses(seen)["domain"], [head.weight])
    d = method.discriminator(method.mapped(seen)).split(B)
    w = [certainty_weights(view.logits, base=0.0) for view in seen.both()]
    plain = sum(
        0.5 * (weight * nn.functional.softplus(-sign * logit)).sum() / weight.detach().sum()
        for weight, logit, sign in zip(w, d, (1, -1), strict=True)
    )
    torch.testing.assert_close(turned, -reversal_coefficient(0.4) * gradients(plain, [head.weight])[0])


class OneLayer:
    """A step that has linear layers and nothing else."""

    def __init__(self, layer):
        self.linear_layers = [layer]


def test_head_and_bridge_are_trained_as_two_layers_of_their_own():
    """Momentum and weight decay act on W and V, although the network keeps W − V between the steps."""
    torch.manual_seed(0)
    method = made("gvb")
    network, features = nn.Linear(K, C), torch.randn(20, K)
    labels = torch.arange(20) % C
    own = nn.Linear(K, C), nn.Linear(K, C)  # W and V
    own[1].load_state_dict(method.bridge.state_dict())
    with torch.no_grad():
        for a, b, v in zip(own[0].parameters(), network.parameters(), own[1].parameters(), strict=True):
            a.copy_(b + v)
    rule = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05, "nesterov": True}
    ours = torch.optim.SGD([*network.parameters(), *method.bridge.parameters()], **rule)
    theirs = torch.optim.SGD([*own[0].parameters(), *own[1].parameters()], **rule)
    for _ in range(30):
        method.prepare(OneLayer(network))
        z = features @ (network.weight - method.bridge.weight).T + network.bias - method.bridge.bias
        ours.zero_grad()
        (nn.functional.cross_entropy(z, labels) + method.bridge(features).abs().mean()).backward()
        ours.step()
        method.finish(OneLayer(network), None)
        theirs.zero_grad()
        bridged = own[1](features)
        (nn.functional.cross_entropy(own[0](features) - bridged, labels) + bridged.abs().mean()).backward()
        theirs.step()
    for mine, w, v in zip(network.parameters(), own[0].parameters(), own[1].parameters(), strict=True):
        torch.testing.assert_close(mine, w - v, rtol=1e-4, atol=1e-5)
    assert own[1].weight.abs().max() > 0.01  # it would prove little if the bridge were gone


def test_the_network_predicts_without_the_method(config):
    """After a step its layer is the head less the bridge that the terms saw, updated."""
    trainer = make_trainer(make_task(changed(config, method="gvb")))
    trainer.fill_memory()
    method, layer = trainer.objective.method, trainer.model.head
    for _ in range(3):
        before = layer.weight.clone()
        trainer.step()
        assert not torch.equal(before, layer.weight)
    seen = []
    minimized = method.losses
    method.losses = lambda out: (seen.append(out.heads[0].weight.detach()), minimized(out))[1]
    before = layer.weight.clone()
    trainer.step()
    torch.testing.assert_close(seen[0], before)
    method.prepare(OneLayer(layer))
    assert not torch.allclose(layer.weight, before, atol=1e-3)  # in between, it is the head alone


def test_the_bridge_shrinks(config):
    """The heavier its weight, the less is left of it."""
    trainer = make_trainer(make_task(changed(config, tsa=False, method="gvb", steps=200, term_weight={"bridge": 10})))
    said = [trainer.step(describe=True) for _ in range(200)]
    assert said[-1]["bridge"] < 0.5 * said[0]["bridge"]
    assert 0 <= said[-1]["bridge_share"] < said[0]["bridge_share"]


def test_saturated_predictions_are_finite_and_learn():
    """Sigmoid and log(p + 1e-5) as published would be flat here."""
    head, out = one_head()
    method = made("gvb").eval()
    with torch.no_grad():
        head.weight.mul_(1e4)
        for part in (method.discriminator.layers[-1], method.bridge):
            part.weight.mul_(1e4)
    out = method.seen(out.through(head.weight, head.bias))
    losses = method.losses(out)
    parameters = [head.weight, *method.parameters()]
    for loss in losses.values():
        assert loss.isfinite()
        assert all(grad is None or grad.isfinite().all() for grad in gradients(loss, parameters))
