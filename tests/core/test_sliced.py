"""The sliced Wasserstein distance of two sets of predictions."""

import ot
import pytest
import torch

from tsadapt.core import random_directions, sliced_wasserstein


def predictions(seed, rows=7, classes=4, dtype=torch.float64):
    return torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed), dtype=dtype).softmax(1)


def directions(count=16, classes=4):
    return random_directions(classes, count, torch.Generator().manual_seed(3)).double()


def test_against_a_loop():
    p, q, theta = predictions(0), predictions(1), directions()
    total = 0.0
    for d in range(theta.shape[1]):
        a = sorted(float(row @ theta[:, d]) for row in p)
        b = sorted(float(row @ theta[:, d]) for row in q)
        total += sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
    assert sliced_wasserstein(p, q, theta).item() == pytest.approx(total / (7 * 16))


def test_against_pot():
    p, q, theta = predictions(0), predictions(1), directions()
    of_pot = ot.sliced_wasserstein_distance(p, q, projections=theta).item()
    assert sliced_wasserstein(p, q, theta).item() == pytest.approx(of_pot**2, rel=1e-12)


def test_sets_and_not_rows_are_compared():
    p, q, theta = predictions(0), predictions(1), directions()
    order = torch.tensor([3, 0, 6, 5, 1, 2, 4])
    torch.testing.assert_close(sliced_wasserstein(p[order], q, theta), sliced_wasserstein(p, q, theta))
    assert sliced_wasserstein(p, p[order], theta).item() == pytest.approx(0, abs=1e-30)
    assert (p - p[order]).abs().mean() > 0.05  # what MCD looks at is not zero


def test_gradients_and_directions():
    p, q = (predictions(s).requires_grad_() for s in (0, 1))
    assert torch.autograd.gradcheck(lambda a, b: sliced_wasserstein(a, b, directions()), (p, q))
    many = random_directions(3, 20_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(many.norm(dim=0), torch.ones(20_000))
    torch.testing.assert_close(many @ many.T / 20_000, torch.eye(3) / 3, rtol=0, atol=0.01)
    with pytest.raises(ValueError, match=r"expected \(B, C\)"):
        sliced_wasserstein(p, q[:3], directions())
