"""The nuclear norm of predictions; the largest singular values are tested in test_adversarial.py."""

import math

import pytest
import torch

from tsadapt.core import nuclear_discrepancy, nuclear_norm


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def naive(matrix):
    """Σ √eigenvalue of AᵀA, one after the other."""
    return sum(math.sqrt(max(float(value), 0)) for value in torch.linalg.eigvalsh(matrix.T @ matrix))


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5), (1, 4), (4, 1)])
def test_nuclear_norm_against_eigenvalues_and_torch(shape):
    a = normal(*shape)
    assert nuclear_norm(a).item() == pytest.approx(naive(a), rel=1e-6)
    torch.testing.assert_close(nuclear_norm(a), torch.linalg.matrix_norm(a, "nuc"))
    torch.testing.assert_close(nuclear_norm(a.T), nuclear_norm(a))
    torch.testing.assert_close(nuclear_norm(-3 * a), 3 * nuclear_norm(a))
    assert torch.autograd.gradcheck(nuclear_norm, a.requires_grad_())


def test_nuclear_norm_of_predictions_in_limiting_cases():
    balanced = torch.eye(5).repeat(4, 1)  # B = 20, C = 5: √(B·C)
    assert nuclear_norm(balanced).item() == pytest.approx(10, rel=1e-6)
    assert nuclear_norm(torch.full((20, 5), 0.2)).item() == pytest.approx(2, rel=1e-6)
    p = normal(20, 5).softmax(1)
    assert nuclear_norm(p) <= math.sqrt(20 * 5)


@pytest.mark.parametrize("matrix", [torch.zeros(4, 3), torch.eye(4, 3), torch.ones(4, 3), torch.full((3, 6), 1 / 6)])
def test_equal_and_vanishing_singular_values(matrix):
    """The gradient is that of the values that are there: none for zeros, u vᵀ for rank one."""
    a = matrix.clone().requires_grad_()
    (grad,) = torch.autograd.grad(nuclear_norm(a), a)
    assert grad.isfinite().all()
    if int(torch.linalg.matrix_rank(matrix)) <= 1:
        torch.testing.assert_close(grad, matrix / matrix.norm().clamp_min(1e-30))


def test_nuclear_discrepancy_by_hand_and_its_sign():
    sure, unsure = 1e4 * torch.eye(4), torch.zeros(4, 4)
    assert nuclear_discrepancy(sure, unsure).item() == pytest.approx(1 - 0.25)  # 4/4 − 1/4
    assert nuclear_discrepancy(unsure, sure).item() == pytest.approx(0.25 - 1)
    assert nuclear_discrepancy(sure, sure).item() == 0
    s, t = normal(6, 4, seed=1), normal(9, 4, seed=2)
    expected = naive(s.softmax(1)) / 6 - naive(t.softmax(1)) / 9
    assert nuclear_discrepancy(s, t).item() == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(nuclear_discrepancy(s.flip(0) + 3, t.flip(0, 1)), nuclear_discrepancy(s, t))
    assert torch.autograd.gradcheck(nuclear_discrepancy, (s.requires_grad_(), t.requires_grad_()))


@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_huge_logits_and_half_precision(scale):
    s, t = ((scale * normal(6, 4, seed=i)).float().requires_grad_() for i in (1, 2))
    value = nuclear_discrepancy(s, t)
    assert value.isfinite()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(value, (s, t)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert nuclear_discrepancy(s.detach().bfloat16(), t.detach().bfloat16()).dtype == torch.float32
        assert nuclear_norm(torch.ones(2, 3).bfloat16()).dtype == torch.float32


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"logits_t has shape \(4, 2\)"):
        nuclear_discrepancy(torch.zeros(4, 3), torch.zeros(4, 2))
    with pytest.raises(ValueError, match="matrix has shape"):
        nuclear_norm(torch.zeros(3))
