"""Entropic transport by its dual: values, POT's own solution, what bounds it, sure potentials."""

import math

import ot
import pytest
import torch

from tsadapt.core import attended_cost, entropic_dual

G = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=G)


def test_the_cost_by_hand():
    f_s, f_t = torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([[3.0, 4.0]])
    query, key = torch.tensor([[math.log(3)], [0.0]]), torch.tensor([[1.0]])
    expected = [[0.75 * 5], [0.5 * math.sqrt(20)]]  # σ(log 3) = ¾; distances, not squares
    torch.testing.assert_close(attended_cost(f_s, f_t, query, key), torch.tensor(expected))


def test_the_cost_naively():
    f_s, f_t, q, k = normal(4, 3), normal(5, 3), normal(4, 2), normal(5, 2)
    cost = attended_cost(f_s, f_t, q, k)
    for i in range(4):
        for j in range(5):
            expected = math.dist(f_s[i], f_t[j]) / (1 + math.exp(-float(q[i] @ k[j])))
            assert cost[i, j].item() == pytest.approx(expected)


def test_the_dual_by_hand_and_naively():
    assert entropic_dual(torch.zeros(1), torch.zeros(1), torch.tensor([[7.0]])).item() == pytest.approx(7)
    u, v, c, eps = normal(3), normal(4), normal(3, 4).abs(), 0.7
    exponentials = [math.exp(float(u[i] + v[j] - c[i, j]) / eps) for i in range(3) for j in range(4)]
    naive = float(u.mean() + v.mean()) - eps * math.log(sum(exponentials) / 12)
    assert entropic_dual(u, v, c, eps).item() == pytest.approx(naive)


def test_gradients():
    inputs = tuple(x.requires_grad_() for x in (normal(3), normal(4), normal(3, 4)))
    assert torch.autograd.gradcheck(lambda u, v, c: entropic_dual(u, v, c, 0.6), inputs)
    inputs = tuple(x.requires_grad_() for x in (normal(3, 2), normal(4, 2), normal(3, 5), normal(4, 5)))
    assert torch.autograd.gradcheck(attended_cost, inputs)


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_at_the_best_potentials_it_is_the_transport_that_pot_finds(epsilon):
    """Value and gradient: ΣPC + ε KL(P ‖ product), and P itself."""
    cost = torch.cdist(normal(6, 3), normal(8, 3) + 1)
    a, b = torch.full((6,), 1 / 6, dtype=torch.float64), torch.full((8,), 1 / 8, dtype=torch.float64)
    plan, log = ot.bregman.sinkhorn_log(
        a.numpy(), b.numpy(), cost.numpy(), epsilon, numItermax=10_000, stopThr=1e-13, log=True
    )
    plan = torch.from_numpy(plan)
    u = epsilon * (torch.from_numpy(log["log_u"]) - a.log())
    v = epsilon * (torch.from_numpy(log["log_v"]) - b.log())
    primal = (plan * cost).sum() + epsilon * (plan * (plan * 48).log()).sum()
    cost.requires_grad_()
    value = entropic_dual(u, v, cost, epsilon)
    torch.testing.assert_close(value, primal)
    torch.testing.assert_close(torch.autograd.grad(value, cost)[0], plan)


def test_no_potentials_exceed_the_cost_of_any_plan():
    cost, eps = normal(5, 5).abs(), 0.5
    plan = torch.eye(5, dtype=torch.float64) / 5
    above = (plan * cost).sum() + eps * math.log(5)  # of the diagonal: KL is log 5
    for _ in range(50):
        assert entropic_dual(3 * normal(5), 3 * normal(5), cost, eps) <= above


def test_what_changes_nothing_and_what_adds():
    u, v, c = normal(4), normal(3), normal(4, 3)
    value = entropic_dual(u, v, c)
    torch.testing.assert_close(entropic_dual(u + 5, v - 2, c), value)  # the published form changes
    torch.testing.assert_close(entropic_dual(u, v, c + 2), value + 2)
    torch.testing.assert_close(entropic_dual(v, u, c.T), value)
    torch.testing.assert_close(entropic_dual(2 * u, 2 * v, 2 * c, 2.0), 2 * value)


def test_the_published_form_at_its_best_constant():
    """max over shifts of mean u + mean v − ε mean exp(…) is W − ε."""
    u, v, c, eps = normal(4), normal(3), normal(4, 3), 0.8

    def published(shift):
        inner = (u[:, None] + shift + v - c) / eps
        return float(u.mean() + shift + v.mean() - eps * inner.exp().mean())

    best = max(published(s / 1000) for s in range(-5000, 5000))
    assert entropic_dual(u, v, c, eps).item() - eps == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_sure_potentials_stay_finite(size):
    """exp(u/ε) is infinite."""
    u, v = torch.tensor([size, -size], requires_grad=True), torch.zeros(3, requires_grad=True)
    value = entropic_dual(u, v, torch.ones(2, 3))
    assert value.isfinite()
    assert all(g.isfinite().all() for g in torch.autograd.grad(value, (u, v)))


def test_equal_rows_have_no_cost_and_a_finite_gradient():
    """The root of a distance of zero has an infinite slope in the published code."""
    f = normal(3, 4).float().requires_grad_()
    cost = attended_cost(f, f.detach(), torch.zeros(3, 1), torch.zeros(3, 1))
    assert (cost.diagonal() == 0).all()
    assert torch.autograd.grad(cost.sum(), f)[0].isfinite().all()


def test_small_distances_of_large_features_keep_their_digits():
    f = 1000 * torch.ones(30, 64)
    cost = attended_cost(f, f + 1e-3, torch.zeros(30, 1), torch.zeros(30, 1))
    torch.testing.assert_close(cost, torch.full((30, 30), 0.5 * 8e-3), rtol=0.05, atol=0)


def test_wrong_shapes():
    with pytest.raises(ValueError, match="expected a vector each"):
        entropic_dual(torch.zeros(2, 1), torch.zeros(3), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="a row for each of u"):
        entropic_dual(torch.zeros(2), torch.zeros(3), torch.zeros(3, 2))
    with pytest.raises(ValueError, match="epsilon is 0"):
        entropic_dual(torch.zeros(2), torch.zeros(3), torch.zeros(2, 3), 0)
    with pytest.raises(ValueError, match="as wide as query"):
        attended_cost(torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 4), torch.zeros(2, 5))
