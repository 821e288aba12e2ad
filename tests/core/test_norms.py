import pytest
import torch

from tsadapt.core import norm_growth_loss


def rows(b=6, k=4, dtype=torch.float64):
    return torch.randn(b, k, dtype=dtype, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("step", [0.3, 1.0, 5.0])
def test_the_value_is_constant_and_the_gradient_lengthens_every_row(step):
    f = rows().requires_grad_()
    loss = norm_growth_loss(f, step)
    assert loss.item() == pytest.approx(step**2)
    (grad,) = torch.autograd.grad(loss, f)
    for row, g in zip(f.detach(), grad, strict=True):
        torch.testing.assert_close(g, -2 * step * row / row.norm() / len(f))
    # One step of that size along the gradient makes each norm longer by just as much.
    moved = f.detach() - 0.5 * len(f) * grad
    torch.testing.assert_close(moved.norm(dim=1), f.detach().norm(dim=1) + step)


def test_the_gradient_is_that_of_the_formula_with_constant_norms():
    """By finite differences of the written formula, whose constant r does not move with f."""
    f = rows()
    constant = f.norm(dim=1)

    def written(x):
        return (x.norm(dim=1) - (constant + 0.7)).square().mean()

    expected = torch.zeros_like(f)
    for i in range(f.shape[0]):
        for j in range(f.shape[1]):
            e = torch.zeros_like(f)
            e[i, j] = 1e-6
            expected[i, j] = (written(f + e) - written(f - e)) / 2e-6
    x = f.clone().requires_grad_()
    (grad,) = torch.autograd.grad(norm_growth_loss(x, 0.7), x)
    torch.testing.assert_close(grad, expected, atol=1e-8, rtol=1e-6)
    assert torch.autograd.gradcheck(written, f.clone().requires_grad_())


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-20, 1e8, 1e20, 3e38])
def test_features_of_any_size_get_the_same_pull(scale):
    """A norm of 1e8 in float32 plus one is itself: the step must not be lost in it; nor may squares overflow."""
    f = (scale * rows(dtype=torch.float32).clamp(-1, 1)).requires_grad_()
    loss = norm_growth_loss(f)
    (grad,) = torch.autograd.grad(loss, f)
    assert loss.item() == 1
    assert grad.isfinite().all()
    if scale > 1e-38:  # smaller numbers have no full precision
        torch.testing.assert_close(grad.norm(dim=1), torch.full((6,), 2 / 6))


def test_a_feature_of_zeros_stays():
    f = torch.zeros(3, 4)
    f[1, 2] = 5.0
    f.requires_grad_()
    loss = norm_growth_loss(f)
    (grad,) = torch.autograd.grad(loss, f)
    assert loss.item() == 1
    assert (grad[[0, 2]] == 0).all()
    torch.testing.assert_close(grad[1], torch.tensor([0.0, 0.0, -2 / 3, 0.0]))


def test_rotation_and_order():
    f = rows()
    rotation = torch.linalg.qr(rows(4, 4))[0]

    def pull(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(norm_growth_loss(x), x)[0]

    torch.testing.assert_close(pull(f @ rotation), pull(f) @ rotation)
    torch.testing.assert_close(pull(f.flip(0)), pull(f).flip(0))


def test_half_precision_and_wrong_shapes():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert norm_growth_loss(rows().bfloat16()).dtype == torch.float32
    for shape in ((4,), (0, 3)):
        with pytest.raises(ValueError, match="features has shape"):
            norm_growth_loss(torch.zeros(shape))
