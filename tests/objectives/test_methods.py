"""What each method's paper and code say of it: values and limiting cases."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from tsadapt.core import certainty_weights, domain_loss, reversal_coefficient, reverse_at, reverse_gradient
from tsadapt.objectives.base import METHODS, Context, Head, Outputs, View

K, C, B = 6, 3, 5


def context(dim=K, classes=C):
    share = torch.full((classes,), 1 / classes)
    return Context(dim, (dim, dim), tuple(map(str, range(classes))), (B, B), share, 1000, (B, B), 8, nn.Identity)


def no_statistics(*_):
    raise AssertionError("no method here reads class statistics")


class Net(nn.Module):
    """Two heads on given features."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(K, C) for _ in range(2))

    def classify(self, f):
        return tuple(head(f) for head in self.heads)


def outputs(progress=0.5, heads=2, seed=0, grad=True):
    torch.manual_seed(seed)
    net = Net()
    f_s, f_t = (torch.randn(B, K, requires_grad=grad) for _ in range(2))
    index = torch.arange(B)
    z_s, z_t = net.classify(f_s), net.classify(f_t)
    made = tuple(
        Head(View(f_s, z_s[i], index, index % C), View(f_t, z_t[i], index), net.heads[i].weight, net.heads[i].bias)
        for i in range(heads)
    )
    source = View(f_s, torch.stack(z_s).mean(0), index, index % C)
    return net, Outputs(
        source, View(f_t, torch.stack(z_t).mean(0), index), made, progress, (f_s, f_t), net.classify, no_statistics,
        torch.Generator, (f_s, f_t), lambda x: (x, net.classify(x)[0]),
    )  # fmt: skip


def made(name, **settings):
    torch.manual_seed(1)
    return METHODS[name](context(), **settings)


ADVERSARIAL = ["dann", "cdan", "cdan+e", "bsp", "bsp+dann", "jada"]


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_a_discriminator_that_knows_nothing_loses_log_two(name):
    method = made(name)
    nn.init.zeros_(method.discriminator.layers[-1].weight)
    nn.init.zeros_(method.discriminator.layers[-1].bias)
    _, out = outputs()
    assert method.losses(out)["domain"].item() == pytest.approx(math.log(2))
    assert method.describe(out)["discriminator_accuracy"] == 0.5


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_the_features_go_against_the_discriminator(name):
    """The gradient at the features is −α times that without reversal; at the start of a run it is none."""
    method = made(name).eval()
    _, out = outputs(progress=0.3)
    (reversed_grad,) = torch.autograd.grad(method.losses(out)["domain"], out.source.features)
    d = method.discriminator(method.mapped(out)).split(B)
    (plain,) = torch.autograd.grad(domain_loss(*d, *method.weights(out)), out.source.features)
    torch.testing.assert_close(reversed_grad, -reversal_coefficient(0.3) * plain)
    _, start = outputs(progress=0.0)
    loss = method.losses(start)["domain"]
    first, last = method.discriminator.layers[0].weight, start.target.features
    grad_d, grad_f = torch.autograd.grad(loss, (first, last))
    assert grad_d.abs().sum() > 0
    assert (grad_f == 0).all()


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_domain_smoothing_is_off_unless_asked_for(name):
    _, out = outputs()
    plain, zero, smooth = made(name), made(name, domain_smoothing=0.0), made(name, domain_smoothing=0.1)
    values = [method.losses(out)["domain"] for method in (plain.eval(), zero.eval(), smooth.eval())]
    d = plain.discriminator(plain.mapped(out)).split(B)
    assert torch.equal(values[0], values[1])
    assert torch.equal(values[0], domain_loss(*d, *plain.weights(out)))
    torch.testing.assert_close(values[2], domain_loss(*d, *plain.weights(out), smoothing=0.1))
    assert values[2] != values[0]


def test_reversal_by_iteration_does_not_depend_on_the_end():
    _, out = outputs(progress=1.0)
    assert made("dann").alpha(out) == pytest.approx(0.9999, abs=1e-4)
    assert made("dann", reversal="iteration").alpha(out) == pytest.approx(0.4621, abs=1e-4)  # 1000 steps


def test_cdan_maps_predictions_as_constants():
    method = made("cdan").eval()
    net, out = outputs()
    grads = torch.autograd.grad(method.losses(out)["domain"], [*net.parameters()], allow_unused=True)
    assert all(g is None or (g == 0).all() for g in grads)
    assert method.mapped(out).shape == (2 * B, K * C)


def test_cdan_takes_a_randomised_map_where_the_product_is_large():
    torch.manual_seed(0)
    large = METHODS["cdan"](context(256, 17))
    small = METHODS["cdan"](context(256, 16))
    assert (large.randomized, small.randomized) == (True, False)
    assert {"r_f", "r_g"} <= set(large.state_dict())  # kept over a restart
    assert not {"r_f", "r_g"} & {name for name, _ in large.named_parameters()}
    assert large.discriminator.layers[0].in_features == 8


def test_entropy_conditioning():
    plain, weighted = made("cdan").eval(), made("cdan+e").eval()
    weighted.load_state_dict(plain.state_dict())
    _, out = outputs()
    assert weighted.losses(out)["domain"] != plain.losses(out)["domain"]
    z = torch.zeros(B, C)
    even = replace(out, source=replace(out.source, logits=z), target=replace(out.target, logits=z))
    torch.testing.assert_close(weighted.losses(even)["domain"], plain.losses(even)["domain"])  # equal entropies


def test_the_gradient_through_the_entropy_is_reversed_or_none():
    net, out = outputs()
    none = made("cdan+e").eval()
    grads = torch.autograd.grad(none.losses(out)["domain"], [*net.parameters()], allow_unused=True)
    assert all(g is None for g in grads)
    net, out = outputs()
    turned = made("cdan+e", entropy_grad="reversed").eval()
    w = net.heads[0].weight
    (grad,) = torch.autograd.grad(turned.losses(out)["domain"], w, retain_graph=True)
    d = turned.discriminator(turned.mapped(out)).split(B)
    straight = domain_loss(*d, certainty_weights(out.source.logits), certainty_weights(out.target.logits))
    (expected,) = torch.autograd.grad(straight, w)
    torch.testing.assert_close(grad, -reversal_coefficient(0.5) * expected)


@pytest.mark.parametrize(("name", "delta"), [("bsp", 1e-4), ("bsp+dann", 2e-4)])
def test_bsp_adds_the_largest_singular_values(name, delta):
    _, out = outputs()
    energy = sum(torch.linalg.svdvals(view.features)[0] ** 2 for view in out.both())
    torch.testing.assert_close(made(name).losses(out)["spectral"], delta * energy)


def test_jada_disagreement():
    method = made("jada").eval()
    net, out = outputs()
    value = method.losses(out)["disagreement"]
    p = [z.softmax(1) for z in net.classify(out.target.features)]
    torch.testing.assert_close(value, -(p[0] - p[1]).abs().sum() / (B * C))
    assert -2 / C <= value <= 0
    g_head, g_f = torch.autograd.grad(value, (net.heads[0].weight, out.target.features))
    assert g_head.abs().sum() > 0
    straight = (p[0] - p[1]).abs().mean()
    (expected,) = torch.autograd.grad(straight, out.target.features)
    torch.testing.assert_close(g_f, reversal_coefficient(0.5) * expected)  # features lower it, heads raise it
    _, out = outputs()
    alike = replace(out, heads=(out.heads[0], out.heads[0]))
    assert method.losses(alike)["disagreement"] == 0


def test_jada_at_the_start_leaves_the_extractor_to_the_source():
    """At α = 0 the discriminator gives the features exactly nothing, the heads nothing but rounding errors.

    The heads' gradients are sums of two heads, minus themselves, taken in another order (`reverse_at`).
    """
    method = made("jada").eval()
    net, out = outputs(progress=0.0)
    features = (out.source.features, out.target.features)
    terms = method.losses(out)
    for grad in torch.autograd.grad(terms["domain"], features, retain_graph=True):
        assert (grad == 0).all()
    p = [head.target.logits.softmax(1) for head in out.heads]
    plain = -(p[0] - p[1]).abs().mean()
    (unturned,) = torch.autograd.grad(plain, features[1], retain_graph=True)
    on_source, on_target = torch.autograd.grad(terms["disagreement"], features, retain_graph=True, allow_unused=True)
    assert on_source is None
    assert on_target.abs().max() <= 1e-6 * unturned.abs().max()
    heads = [*net.parameters()]
    for turned, same in zip(
        torch.autograd.grad(terms["disagreement"], heads, retain_graph=True),
        torch.autograd.grad(plain, heads),
        strict=True,
    ):
        assert torch.equal(turned, same)  # the heads learn all the same


def test_one_pass_serves_terms_that_reverse_and_terms_that_do_not():
    """`reverse_at` after the pass is `reverse_gradient` before it, with dropout and for every parameter."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(K, K), nn.Dropout(), nn.BatchNorm1d(K), nn.Linear(K, C))
    f = torch.randn(B, K, requires_grad=True)
    grads = []
    for after in (False, True):
        torch.manual_seed(1)
        loss = net(f if after else reverse_gradient(f, 0.3)).softmax(1).square().mean()
        loss = reverse_at(loss, [f], 0.3) if after else loss
        grads.append(torch.autograd.grad(loss, [f, *net.parameters()]))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def test_reverse_at_leaves_a_loss_without_gradients_alone():
    loss = torch.ones(())
    assert reverse_at(loss, [torch.ones(2, requires_grad=True)], 1.0) is loss
    learned = torch.ones((), requires_grad=True)
    assert reverse_at(learned, [torch.ones(2)], 1.0) is learned  # features that do not learn


def test_jada_goes_through_its_heads_once():
    """Another pass would draw other dropout masks, and count its batch in the running averages once more."""
    method = made("jada")
    _, out = outputs()

    def again(features):
        raise AssertionError("a second pass through the heads")

    method.losses(replace(out, classify=again))


def test_which_methods_normalise_the_domains_apart():
    apart = {name for name in METHODS if METHODS[name].separate_bn}
    assert apart == {
        "dann",
        "bsp+dann",
        "jada",
        "dan",
        "afn",
        "adda",
        "gvb",
        "symnets",
        "etd",
        "dmrl",
        "tat",
        "tpn",
        "simnet",
    }
