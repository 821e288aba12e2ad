import math

import pytest
import torch
from torch.nn import functional as F

from tsadapt.core import (
    certainty_weights,
    domain_loss,
    inverted_domain_loss,
    largest_singular_energy,
    multilinear_map,
    randomized_map,
    reversal_coefficient,
    reverse_gradient,
)

G = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=G)


def test_reversal_is_the_identity_with_a_turned_gradient():
    x, v = normal(3, 4).requires_grad_(), normal(3, 4)
    assert torch.equal(reverse_gradient(x, 0.7), x)
    (reverse_gradient(x, 0.7) * v).sum().backward()
    torch.testing.assert_close(x.grad, -0.7 * v)
    x.grad = None
    (reverse_gradient(x, 0.0) * v).sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize(("t", "value"), [(0, 0.0), (1000, 0.4621), (5000, 0.9866), (10000, 0.9999)])
def test_coefficient_by_iteration(t, value):
    assert reversal_coefficient(t / 10000, gain=10.0) == pytest.approx(value, abs=5e-5)


def test_domain_loss_by_hand_and_by_binary_cross_entropy():
    assert domain_loss(torch.zeros(3), torch.zeros(7)).item() == pytest.approx(math.log(2))
    d_s, d_t = normal(5), normal(5)
    expected = F.binary_cross_entropy_with_logits(torch.cat([d_s, d_t]), torch.tensor([1.0] * 5 + [0.0] * 5).double())
    torch.testing.assert_close(domain_loss(d_s, d_t), expected)
    torch.testing.assert_close(domain_loss(d_s, d_t), domain_loss(-d_t, -d_s))  # domains and labels swapped
    extreme = torch.tensor([-1e4, 1e4])
    assert math.isfinite(domain_loss(extreme, extreme).item())


def test_weights_of_the_domain_loss():
    d_s, d_t, w_s, w_t = normal(4), normal(6), normal(4).exp(), normal(6).exp()
    naive = 0.5 * sum(w * math.log1p(math.exp(-d)) for w, d in zip(w_s.tolist(), d_s.tolist(), strict=True)) / w_s.sum()
    naive += 0.5 * sum(w * math.log1p(math.exp(d)) for w, d in zip(w_t.tolist(), d_t.tolist(), strict=True)) / w_t.sum()
    torch.testing.assert_close(domain_loss(d_s, d_t, w_s, w_t), naive)
    torch.testing.assert_close(domain_loss(d_s, d_t, 3 * torch.ones(4), torch.ones(6)), domain_loss(d_s, d_t))
    assert torch.autograd.gradcheck(
        lambda a, b: domain_loss(a, b, w_s, w_t), (d_s.requires_grad_(), d_t.requires_grad_())
    )


@pytest.mark.parametrize("s", [0.05, 0.2, 0.5])
def test_smoothed_domains_by_binary_cross_entropy(s):
    d_s, d_t = normal(5), normal(5)
    labels = torch.tensor([1 - s] * 5 + [s] * 5).double()
    expected = F.binary_cross_entropy_with_logits(torch.cat([d_s, d_t]), labels)
    torch.testing.assert_close(domain_loss(d_s, d_t, smoothing=s), expected)
    assert domain_loss(torch.zeros(3), torch.zeros(4), smoothing=s).item() == pytest.approx(math.log(2))
    sure = torch.full((4,), math.log((1 - s) / s), dtype=torch.float64, requires_grad=True)  # D = 1 − s and D = s
    (grad,) = torch.autograd.grad(domain_loss(sure, -sure, smoothing=s), sure)
    torch.testing.assert_close(grad, torch.zeros_like(grad))
    w = normal(5).exp()
    both = (d_s.requires_grad_(), d_t.requires_grad_())
    assert torch.autograd.gradcheck(lambda a, b: domain_loss(a, b, w, w.flip(0), smoothing=s), both)
    extreme = torch.tensor([-1e30, 1e30])
    assert math.isfinite(domain_loss(extreme, extreme, smoothing=s).item())


def test_without_smoothing_every_bit_stays():
    d_s, d_t = (normal(50).float() for _ in range(2))
    assert torch.equal(domain_loss(d_s, d_t, smoothing=0.0), 0.5 * (F.softplus(-d_s).mean() + F.softplus(d_t).mean()))


def test_certainty_weights():
    w = certainty_weights(normal(50, 6) * 5)
    assert (w > 1).all()
    assert (w <= 2).all()
    torch.testing.assert_close(certainty_weights(torch.zeros(2, 4)), torch.full((2,), 1.25))
    assert certainty_weights(torch.tensor([[1e4, -1e4]])).item() == 2
    assert torch.autograd.gradcheck(certainty_weights, normal(3, 4).requires_grad_())


def test_certainty_alone():
    """exp(−H), without the 1 that CDAN+E adds: a quarter for four equal probabilities, 1 for a certain prediction."""
    z = normal(50, 6) * 5
    torch.testing.assert_close(1 + certainty_weights(z, base=0.0), certainty_weights(z))
    torch.testing.assert_close(certainty_weights(torch.zeros(2, 4), base=0.0), torch.full((2,), 0.25))
    assert certainty_weights(torch.tensor([[1e4, -1e4]]), base=0.0).item() == 1
    many = certainty_weights(torch.zeros(1, 1000), base=0.0)
    assert many.item() == pytest.approx(1e-3, rel=1e-5)  # 1 + exp(−H) − 1 would have lost digits


def test_multilinear_map():
    f, g = normal(2, 3), torch.eye(4, dtype=torch.float64)[[2, 0]]
    t = multilinear_map(f, g)
    assert t.shape == (2, 12)
    torch.testing.assert_close(t[0].view(4, 3)[2], f[0])
    assert (t[0].view(4, 3)[[0, 1, 3]] == 0).all()  # a certain prediction leaves one block
    torch.testing.assert_close(multilinear_map(f, torch.full((2, 4), 0.25).double()), f.repeat(1, 4) / 4)
    a, b = multilinear_map(f, g.softmax(1))
    torch.testing.assert_close(a @ b, (f[0] @ f[1]) * (g.softmax(1)[0] @ g.softmax(1)[1]))


def test_the_randomised_map_keeps_inner_products_on_average():
    f, g = normal(2, 3), normal(2, 4).softmax(1)
    found = []
    for _ in range(300):
        a, b = randomized_map(f, g, normal(3, 200), normal(4, 200))
        found.append(float(a @ b))
    expected = float((f[0] @ f[1]) * (g[0] @ g[1]))
    error = torch.tensor(found).std() / 300**0.5
    assert abs(sum(found) / 300 - expected) < 4 * error


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (1, 5), (5, 1)])
@pytest.mark.parametrize("k", [1, 3])
def test_singular_energy_against_the_singular_values(shape, k):
    f = normal(*shape).requires_grad_()
    expected = torch.linalg.svdvals(f)[:k].square().sum()
    torch.testing.assert_close(largest_singular_energy(f, k), expected)
    (ours,) = torch.autograd.grad(largest_singular_energy(f, k), f)
    (theirs,) = torch.autograd.grad(expected, f)
    torch.testing.assert_close(ours, theirs)
    if k == 1:
        u, s, v = torch.linalg.svd(f.detach(), full_matrices=False)
        torch.testing.assert_close(ours, 2 * s[0] * torch.outer(u[:, 0], v[0]))
        assert torch.autograd.gradcheck(largest_singular_energy, f)


def test_singular_energy_in_limiting_cases():
    u, v = normal(5), normal(7)
    rank_one = torch.outer(u, v)
    torch.testing.assert_close(largest_singular_energy(rank_one), rank_one.square().sum())
    f = normal(5, 7)
    torch.testing.assert_close(largest_singular_energy(3 * f), 9 * largest_singular_energy(f))
    rotation = torch.linalg.qr(normal(7, 7))[0]
    torch.testing.assert_close(largest_singular_energy(f @ rotation), largest_singular_energy(f))
    for equal in (torch.zeros(4, 6), torch.eye(4, 6), torch.ones(4, 6)):  # repeated and vanishing values
        f = equal.clone().requires_grad_()
        (grad,) = torch.autograd.grad(largest_singular_energy(f), f)
        assert grad.isfinite().all()
    assert largest_singular_energy(normal(4, 6).bfloat16()).dtype == torch.float32
    with pytest.raises(ValueError, match="k is 0"):
        largest_singular_energy(f, 0)


def test_inverted_labels_by_hand_and_naively():
    assert inverted_domain_loss(torch.zeros(3)).item() == pytest.approx(math.log(2))
    d = normal(6)
    naive = -sum(math.log(1 / (1 + math.exp(-v))) for v in d.tolist()) / 6
    torch.testing.assert_close(inverted_domain_loss(d).item(), naive)
    torch.testing.assert_close(inverted_domain_loss(d), inverted_domain_loss(d.flip(0)))
    torch.testing.assert_close(inverted_domain_loss(d), inverted_domain_loss(-d) - d.mean())
    assert torch.autograd.gradcheck(inverted_domain_loss, d.requires_grad_())
    assert inverted_domain_loss(torch.tensor([-1e4, 1e4])).item() == 5000


def test_inverted_labels_pull_where_a_reversed_gradient_no_longer_does():
    """The discriminator is sure that the row is from the target."""
    d = torch.tensor([-20.0], requires_grad=True)
    (inverted,) = torch.autograd.grad(inverted_domain_loss(d), d)
    (turned,) = torch.autograd.grad(-F.softplus(d).mean(), d)
    assert inverted.item() == pytest.approx(-1)
    assert turned.item() == pytest.approx(0, abs=1e-8)
