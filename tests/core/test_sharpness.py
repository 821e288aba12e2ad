"""The step up the slope: by hand, against a loop, and what it is the best of."""

import math

import pytest
import torch

from tsadapt.core import uphill

G = torch.Generator().manual_seed(0)


def slopes(*shapes, dtype=torch.float64):
    return [torch.randn(shape, dtype=dtype, generator=G) for shape in shapes]


def test_by_hand():
    """A slope of length √(1 + 4 + 4) = 3 over two parameters, ρ = 0.6."""
    a, b = uphill([torch.tensor([1.0, -2.0]), torch.tensor([[2.0]])], 0.6)
    torch.testing.assert_close(a, torch.tensor([0.2, -0.4]))
    torch.testing.assert_close(b, torch.tensor([[0.4]]))


def test_one_length_for_all_parameters_together():
    given = slopes((3, 4), (5,), ())
    length = math.sqrt(sum(float(value) ** 2 for g in given for value in g.flatten()))
    for move, g in zip(uphill(given, 0.05), given, strict=True):
        torch.testing.assert_close(move, 0.05 / length * g)


def test_no_step_of_that_length_raises_a_linear_loss_more():
    given = slopes((3, 4), (5,))
    gain = sum(float((move * g).sum()) for move, g in zip(uphill(given, 0.5), given, strict=True))
    for _ in range(50):
        other = slopes((3, 4), (5,))
        length = math.sqrt(sum(float(o.square().sum()) for o in other))
        assert sum(float((0.5 / length * o * g).sum()) for o, g in zip(other, given, strict=True)) <= gain * (1 + 1e-6)


@pytest.mark.parametrize("size", [1e-30, 1e-6, 1e6, 1e30])
def test_the_size_of_the_slope_does_not_matter(size):
    given = slopes((4, 4), (2,), dtype=torch.float32)
    for move, same in zip(uphill([size * g for g in given], 0.1), uphill(given, 0.1), strict=True):
        torch.testing.assert_close(move, same, rtol=1e-5, atol=0)


def test_a_flat_place_has_no_way_up():
    assert all((move == 0).all() for move in uphill([torch.zeros(3), torch.zeros(2, 2)], 0.05))
    assert uphill([], 0.05) == []


def test_dtype_and_graph():
    g = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
    (move,) = uphill([2 * g], 1.0)
    assert move.dtype == torch.bfloat16
    assert not move.requires_grad
