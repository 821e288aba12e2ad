import math

import pytest
import torch

from tsadapt.core import margin_disparity_loss


def problem(b_s=5, b_t=7, c=4):
    g = torch.Generator().manual_seed(0)
    z = [2 * torch.randn(b, c, dtype=torch.float64, generator=g) for b in (b_s, b_t)]
    y = [torch.randint(c, (b,), generator=g) for b in (b_s, b_t)]
    return z[0], y[0], z[1], y[1]


def naive(z_s, y_s, z_t, y_t, gamma):
    agree = sum(-math.log(row.softmax(0)[y]) for row, y in zip(z_s, y_s, strict=True)) / len(z_s)
    disagree = sum(-math.log(1 - row.softmax(0)[y]) for row, y in zip(z_t, y_t, strict=True)) / len(z_t)
    return gamma * agree + disagree


@pytest.mark.parametrize("gamma", [0.5, 2.0, 4.0])
def test_equals_the_formula_written_out(gamma):
    z_s, y_s, z_t, y_t = problem()
    expected = naive(z_s, y_s, z_t, y_t, gamma)
    assert margin_disparity_loss(z_s, y_s, z_t, y_t, gamma).item() == pytest.approx(expected, rel=1e-12)
    assert margin_disparity_loss(z_s + 70, y_s.int(), z_t - 3, y_t.int(), gamma).item() == pytest.approx(expected)


def test_a_second_classifier_that_knows_nothing():
    """γ log C − log(1 − 1/C)."""
    y = torch.tensor([0, 30, 5])
    value = margin_disparity_loss(torch.zeros(3, 31), y, torch.zeros(3, 31), y, gamma=4)
    assert value.item() == pytest.approx(13.76874, abs=1e-5)
    assert value.item() == pytest.approx(4 * math.log(31) - math.log(30 / 31), abs=1e-5)


@pytest.mark.parametrize("gamma", [1.0, 4.0])
def test_equilibrium_on_domains_that_cannot_be_told(gamma):
    """The same logits on both domains: the gradient vanishes at a confidence of γ/(1 + γ)."""
    p = gamma / (1 + gamma)
    z = torch.tensor([[p, *[(1 - p) / 3] * 3]], dtype=torch.float64).log().requires_grad_()
    y = torch.tensor([0])
    (grad,) = torch.autograd.grad(margin_disparity_loss(z, y, z, y, gamma), z)
    torch.testing.assert_close(grad, torch.zeros_like(grad))


def test_gradient():
    z_s, y_s, z_t, y_t = problem()
    both = (z_s.requires_grad_(), z_t.requires_grad_())
    assert torch.autograd.gradcheck(lambda a, b: margin_disparity_loss(a, y_s, b, y_t, 4.0), both)


def test_certainty_costs_and_keeps_its_gradient():
    """At p_y = 1 − e^−50, log(1 − p_y) = −50; a clamp or a float32 of 1 would leave no gradient."""
    z = torch.tensor([[50.0, 0.0]], requires_grad=True)
    y = torch.tensor([0])
    loss = margin_disparity_loss(torch.tensor([[500.0, 0.0]]), y, z, y)
    assert loss.item() == pytest.approx(50)
    (grad,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(grad, torch.tensor([[1.0, -1.0]]))


@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_huge_logits(scale):
    z_s, y_s, z_t, y_t = problem()
    z = [(scale * x).float().requires_grad_() for x in (z_s, z_t)]
    loss = margin_disparity_loss(z[0], y_s, z[1], y_t)
    assert loss.isfinite()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(loss, z))


def test_half_precision_and_what_does_not_fit():
    z_s, y_s, z_t, y_t = problem()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert margin_disparity_loss(z_s.bfloat16(), y_s, z_t.bfloat16(), y_t).dtype == torch.float32
    with pytest.raises(ValueError, match="at least 2"):
        margin_disparity_loss(z_s[:, :1], y_s * 0, z_t[:, :1], y_t * 0)
    with pytest.raises(ValueError, match=r"predicted_t has shape \(5,\)"):
        margin_disparity_loss(z_s, y_s, z_t, y_s)
    with pytest.raises(ValueError, match="predicted_s contains 4"):
        margin_disparity_loss(z_s, y_s * 0 + 4, z_t, y_t)
    with pytest.raises(ValueError, match=r"logits_t has shape \(7, 3\)"):
        margin_disparity_loss(z_s, y_s, z_t[:, :3], y_t)
