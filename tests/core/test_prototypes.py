import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsadapt.core import prototype_distance

close = torch.testing.assert_close


def case(seed=0, b=7, t=6, classes=4, dim=3):
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    def guess(n):
        return torch.randint(classes, (n,), generator=g)

    return normal(b, dim), guess(b), normal(t, dim), guess(t), normal(classes, dim), normal(classes).abs()


def naive(f, y, f_t, y_t, shift, variance, strength):
    each = []
    for i, label in enumerate(y.tolist()):
        mine = [f_t[j] for j in range(len(y_t)) if y_t[j] == label]
        if mine:
            d = f[i] + strength * shift[label] - sum(mine) / len(mine)
            each.append(d @ d + strength * variance[label])
    return sum(each) / len(each) if each else torch.zeros((), dtype=f.dtype)


@given(seed=st.integers(0, 1000), strength=st.floats(0, 1))
@settings(max_examples=20, deadline=None)
def test_equals_the_formula(seed, strength):
    arguments = case(seed)
    close(prototype_distance(*arguments, strength), naive(*arguments, strength))
    f, y, f_t, y_t, _, _ = arguments
    still = (torch.zeros(4, 3, dtype=torch.float64), torch.zeros(4, dtype=torch.float64))
    close(prototype_distance(f, y, f_t, y_t), naive(f, y, f_t, y_t, *still, 1.0))


def test_by_hand():
    """Class 0: (1 + ½·2 − mean(3, 5))² + ½·0.5 = 4.25; class 1 has no target, class 2 is at its mean: 0 + ½·1."""
    f, y = torch.tensor([[1.0], [7.0], [8.0]]), torch.tensor([0, 1, 2])
    f_t, y_t = torch.tensor([[3.0], [5.0], [8.0]]), torch.tensor([0, 0, 2])
    shift, variance = torch.tensor([[2.0], [9.0], [0.0]]), torch.tensor([0.5, 9.0, 1.0])
    assert prototype_distance(f, y, f_t, y_t, shift, variance, 0.5).item() == pytest.approx((4.25 + 0.5) / 2)


def test_it_is_the_mean_distance_of_copies():
    f, y, f_t, y_t, shift, _ = case(3)
    g = torch.Generator().manual_seed(0)
    root = torch.randn(4, 3, 3, generator=g, dtype=torch.float64)
    variance = (root @ root.mT).diagonal(dim1=1, dim2=2).sum(1)
    eps = torch.randn(20_000, len(f), 3, 1, generator=g, dtype=torch.float64)
    copies = f + 0.4 * shift[y] + 0.4**0.5 * (root[y] @ eps)[..., 0]
    mean = prototype_distance(copies.flatten(0, 1), y.repeat(20_000), f_t, y_t)
    close(prototype_distance(f, y, f_t, y_t, shift, variance, 0.4), mean, rtol=0.02, atol=0)


def test_gradcheck_in_both_domains():
    f, y, f_t, y_t, shift, variance = case(1)
    assert torch.autograd.gradcheck(
        lambda a, b: prototype_distance(a, y, b, y_t, shift, variance, 0.5), (f.requires_grad_(), f_t.requires_grad_())
    )


def test_no_class_in_common_and_far_features():
    f, _, f_t, _, shift, _ = case(2)
    f = (1e4 * f.float()).requires_grad_()
    nothing = prototype_distance(f, torch.zeros(7, dtype=torch.int64), f_t.float(), torch.ones(6, dtype=torch.int64))
    assert nothing == 0
    assert (torch.autograd.grad(nothing, f)[0] == 0).all()
    far = prototype_distance(f, torch.zeros(7, dtype=torch.int64), f_t.float(), torch.zeros(6, dtype=torch.int64))
    assert far.isfinite()
    with pytest.raises(ValueError, match="guesses has shape"):
        prototype_distance(f, torch.zeros(7, dtype=torch.int64), f_t, torch.zeros(5, dtype=torch.int64), shift)
