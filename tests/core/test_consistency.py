import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsadapt.core import confident_label_loss, dropout_view


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def naive_loss(weak, strong, confidence):
    total = 0.0
    for w, s in zip(weak.tolist(), strong.tolist(), strict=True):
        p = [math.exp(z - max(w)) / sum(math.exp(v - max(w)) for v in w) for z in w]
        label = p.index(max(p))
        if p[label] > confidence:
            total += math.log(sum(math.exp(v - max(s)) for v in s)) + max(s) - s[label]
    return total / len(weak)


@given(
    seed=st.integers(0, 1000), b=st.integers(1, 9), c=st.integers(1, 6), scale=st.sampled_from([0.3, 3.0, 30.0]),
    confidence=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_row_by_row(seed, b, c, scale, confidence):
    weak, strong = scale * normal(b, c, seed=seed), normal(b, c, seed=seed + 1)
    loss = confident_label_loss(weak, strong, confidence)
    assert loss.item() == pytest.approx(naive_loss(weak, strong, confidence), abs=1e-9)
    order = torch.randperm(b, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(confident_label_loss(weak[order], strong[order], confidence), loss)
    classes = torch.randperm(c, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(confident_label_loss(weak[:, classes], strong[:, classes], confidence), loss)


def test_by_hand():
    """p = (0.8, 0.2) and (0.95, 0.05): the first counts above 0.75 alone, and both are divided by."""
    weak = torch.tensor([[0.8, 0.2], [0.05, 0.95]]).log()
    strong = torch.tensor([[0.5, 0.5], [0.75, 0.25]]).log()
    assert confident_label_loss(weak, strong, 0.9).item() == pytest.approx(math.log(4) / 2)
    assert confident_label_loss(weak, strong, 0.75).item() == pytest.approx((math.log(4) + math.log(2)) / 2)
    assert confident_label_loss(weak, strong, 0.96) == 0
    assert confident_label_loss(weak, strong, 0.95 + 1e-6) == 0


def test_the_gradient_is_of_the_strong_view_alone():
    weak, strong = 5 * normal(6, 3).requires_grad_(), normal(6, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: confident_label_loss(weak.detach(), s, 0.9), strong)
    sure = weak.detach().softmax(1).amax(1) > 0.9
    assert 0 < sure.sum() < 6
    grad = torch.autograd.grad(confident_label_loss(weak, strong, 0.9), strong)[0]
    assert bool((grad[~sure] == 0).all())
    assert bool((grad[sure] != 0).any())
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad(confident_label_loss(weak, strong, 0.9), weak)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_extremes(dtype, scale):
    weak, strong = (scale * normal(5, 4)).to(dtype), (-scale * normal(5, 4)).to(dtype).requires_grad_()
    loss = confident_label_loss(weak, strong, 0.9)
    assert loss.isfinite()
    assert loss.dtype == torch.float32
    assert torch.autograd.grad(loss, strong)[0].isfinite().all()
    nobody = torch.zeros(1, 4, dtype=dtype)
    none = confident_label_loss(nobody, strong[:1], 0.9)
    assert none == 0
    assert bool((torch.autograd.grad(none, strong)[0] == 0).all())


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"strong is \(3, 2\), expected \(2, 2\)"):
        confident_label_loss(torch.zeros(2, 2), torch.zeros(3, 2), 0.9)
    with pytest.raises(ValueError, match="rate is 2"):
        dropout_view(torch.zeros(2, 2), 2, torch.Generator())


def test_a_dropout_view():
    x = normal(200, 50)
    generator = torch.Generator().manual_seed(3)
    first, second = dropout_view(x, 0.3, generator), dropout_view(x, 0.3, generator)
    assert torch.equal(dropout_view(x, 0.3, torch.Generator().manual_seed(3)), first)
    assert not torch.equal(first, second)
    lost = first != x
    assert lost.double().mean().item() == pytest.approx(0.3, abs=0.02)
    torch.testing.assert_close(first[lost], x.mean(0).expand_as(x)[lost])
    assert torch.equal(dropout_view(x, 0.0, generator), x)
    torch.testing.assert_close(dropout_view(x, 1.0, generator), x.mean(0).expand_as(x))


def test_a_dropout_view_follows_the_scale_of_each_column():
    x, scale, shift = normal(20, 4), torch.tensor([1.0, -3.0, 1e3, 0.5]).double(), torch.tensor([0.0, 5, -1e3, 1e6])
    views = [dropout_view(y, 0.4, torch.Generator().manual_seed(1)) for y in (x, scale * x + shift)]
    torch.testing.assert_close(views[1], scale * views[0] + shift)


def test_a_dropout_view_of_rows_of_any_kind():
    images = torch.arange(24, dtype=torch.uint8).view(2, 3, 4)
    view = dropout_view(images, 0.5, torch.Generator().manual_seed(0))
    assert view.dtype == torch.float32
    assert set(view[0].flatten().tolist()) <= {*range(12), *range(6, 18)}
    one = dropout_view(images[:1].double(), 0.5, torch.Generator().manual_seed(0))
    assert torch.equal(one, images[:1].double())  # its own mean
