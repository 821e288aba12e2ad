"""Copies that climb: closed forms, a loop over the rows, what they may not touch, how far they get."""

import math

import pytest
import torch
from torch import nn

from tsadapt.core import climb

G = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=G)


@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_a_constant_slope_in_closed_form(steps):
    """Δ_k = (1 − (1 − 2·rate·spring)^k) g/(2·spring)."""
    x, g = normal(3, 4), normal(4)
    moved = climb(x, lambda x: (x @ g).sum(), steps, 2.0, spring=0.1, anchor=x) - x
    torch.testing.assert_close(moved, ((1 - 0.6**steps) * g / 0.2).expand(3, 4))


def test_by_hand():
    """Height log(1 + e^x) of one number from 0: a first step of 2·½, a second of 2·(σ(1) − 0.2·1)."""
    x = torch.zeros(1, 1)
    first, second = (climb(x, lambda x: nn.functional.softplus(x).sum(), k, 2.0, spring=0.1, anchor=x) for k in (1, 2))
    assert first.item() == pytest.approx(1.0)
    assert second.item() == pytest.approx(1 + 2 * (1 / (1 + math.exp(-1)) - 0.2))


def test_naively_row_by_row():
    """Rows climb on their own, whatever else is in the batch."""
    x, anchor, w = normal(5, 3), normal(5, 3), normal(3)
    climbed = climb(x, lambda x: nn.functional.softplus(x @ w).sum(), 6, 0.7, spring=0.3, anchor=anchor)
    for i in range(5):
        row, home = x[i].tolist(), anchor[i].tolist()
        for _ in range(6):
            sigma = 1 / (1 + math.exp(-sum(a * float(b) for a, b in zip(row, w, strict=True))))
            row = [
                a + 0.7 * (sigma * float(b) - 2 * 0.3 * (a - h)) for a, b, h in zip(row, w, home, strict=True)
            ]  # fmt: skip
        torch.testing.assert_close(climbed[i], torch.tensor(row, dtype=torch.float64))


def test_the_spring_is_fixed_to_the_anchor():
    start, anchor = normal(2, 3), normal(2, 3)
    flat = climb(start, lambda x: 0 * x.sum(), 200, 2.0, spring=0.1, anchor=anchor)
    torch.testing.assert_close(flat, anchor)


def test_copies_are_constants_and_nothing_else_is_touched():
    net = nn.Linear(3, 1).double()
    x = normal(4, 3).requires_grad_()
    before = x.detach().clone()
    with torch.no_grad():  # as where values are logged
        climbed = climb(x, lambda x: net(x).sum(), 3, 2.0, spring=0.1, anchor=x)
    assert not climb(x, lambda x: net(x).sum(), 3, 2.0, spring=0.1, anchor=x).requires_grad
    assert torch.equal(x, before)
    assert not torch.equal(climbed, before)
    assert all(p.grad is None for p in [x, *net.parameters()])


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_no_row_goes_further_than_its_slope_allows(size):
    slope = size * normal(6, 3).float()
    x = size * normal(6, 3).float()
    climbed = climb(x, lambda x: (x.sigmoid() * slope).sum(), 50, 2.0, spring=0.1, anchor=x)
    assert climbed.isfinite().all()
    largest = slope.abs().amax() / 4  # of a sigmoid
    assert ((climbed - x).abs() <= 1.001 * largest / 0.2).all()


def test_shapes():
    with pytest.raises(ValueError, match=r"start has shape \(2, 3\) and anchor \(2, 4\)"):
        climb(torch.zeros(2, 3), torch.sum, 1, 1.0, spring=0.1, anchor=torch.zeros(2, 4))
