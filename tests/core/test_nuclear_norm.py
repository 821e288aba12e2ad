import math

import pytest
import torch

from tsadapt.core import nuclear_norm, nuclear_norm_loss


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def naive(a):
    """The roots of the eigenvalues of AᵀA, summed."""
    return sum(math.sqrt(max(float(v), 0.0)) for v in torch.linalg.eigvalsh(a.double().T @ a.double()))


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (1, 5), (5, 1)])
def test_against_the_eigenvalues(shape):
    a = normal(*shape).requires_grad_()
    assert nuclear_norm(a).item() == pytest.approx(naive(a.detach()), abs=1e-6)
    (grad,) = torch.autograd.grad(nuclear_norm(a), a)
    u, _, v = torch.linalg.svd(a.detach(), full_matrices=False)
    torch.testing.assert_close(grad, u @ v)
    assert torch.autograd.gradcheck(nuclear_norm, a)


@pytest.mark.parametrize(("b", "c"), [(7, 4), (3, 8), (5, 1)])
def test_the_loss_is_the_mean_singular_value(b, c):
    logits = normal(b, c)
    p = logits.softmax(1)
    assert nuclear_norm_loss(logits).item() == pytest.approx(-naive(p) / min(b, c), abs=1e-6)
    order = torch.randperm(b)
    torch.testing.assert_close(nuclear_norm_loss(logits[order] + 3), nuclear_norm_loss(logits))
    assert torch.autograd.gradcheck(nuclear_norm_loss, logits.requires_grad_())


def test_values_of_certain_and_of_uniform_predictions():
    """B = 20, C = 5: a nuclear norm of 10 for balanced one-hot rows, the most there is, and of 2 for uniform ones."""
    certain = torch.eye(5).repeat(4, 1)
    assert nuclear_norm(certain).item() == pytest.approx(10, abs=1e-5)
    assert nuclear_norm(torch.full((20, 5), 0.2)).item() == pytest.approx(2, abs=1e-5)
    assert nuclear_norm_loss(1e4 * certain).item() == pytest.approx(-10 / 5, abs=1e-5)
    assert nuclear_norm_loss(torch.zeros(20, 5)).item() == pytest.approx(-2 / 5, abs=1e-5)
    one_class = nuclear_norm_loss(1e4 * torch.eye(5)[:1].repeat(20, 1)).item()
    assert one_class == pytest.approx(-math.sqrt(20) / 5, abs=1e-5)  # certain, and not varied


@pytest.mark.parametrize("scale", [1e4, -1e4])
@pytest.mark.parametrize("shape", [(6, 4), (3, 8), (1, 3), (4, 1)])
def test_extreme_logits(scale, shape):
    logits = (scale * normal(*shape)).float().requires_grad_()
    loss = nuclear_norm_loss(logits)
    assert loss.isfinite()
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()


@pytest.mark.parametrize("a", [torch.zeros(4, 6), torch.eye(4, 6), torch.ones(6, 4)], ids=["zero", "equal", "rank one"])
def test_repeated_and_vanishing_values_have_a_finite_gradient(a):
    a = a.clone().requires_grad_()
    (grad,) = torch.autograd.grad(nuclear_norm(a), a)
    assert grad.isfinite().all()
    assert torch.linalg.matrix_norm(grad, 2) <= 1 + 1e-5  # of a subgradient


def test_what_is_not_finite_gives_nan_for_the_trainer_to_name():
    assert nuclear_norm_loss(torch.tensor([[math.nan, 0.0], [0.0, 1.0]])).isnan()


def test_half_precision_computes_in_float32():
    logits = torch.randn(16, 5).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nuclear_norm_loss(logits)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(nuclear_norm_loss(logits.float()).item(), abs=1e-6)


@pytest.mark.parametrize("shape", [(4,), (0, 3), (2, 3, 4)])
def test_wrong_shape_is_named(shape):
    with pytest.raises(ValueError, match="logits has shape"):
        nuclear_norm_loss(torch.zeros(shape))
