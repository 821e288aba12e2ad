import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsadapt.core import class_confusion_loss


def naive(logits, temperature=2.5):
    """The matrix as it is published: w = B·(1 + e^−H)/Σ, M = (w ⊙ p)ᵀp, rows that sum to one, what is off its diagonal.

    In float64, where no class of these tests is without any probability.
    """
    p = (logits.double() / temperature).softmax(1)
    b, c = p.shape
    w = [1 + math.exp(sum(v * math.log(v) for v in row if v > 0)) for row in p.tolist()]
    w = [b * v / sum(w) for v in w]
    total = 0.0
    for i in range(c):
        row = [sum(w[j] * float(p[j, i] * p[j, k]) for j in range(b)) for k in range(c)]
        total += sum(v for k, v in enumerate(row) if k != i) / sum(row)
    return total / c


@given(seed=st.integers(0, 1000), b=st.integers(1, 9), c=st.integers(1, 6), temperature=st.sampled_from([0.5, 1, 2.5]))
@settings(max_examples=40, deadline=None)
def test_equals_the_formula_within_its_range(seed, b, c, temperature):
    logits = 3 * torch.randn(b, c, generator=torch.Generator().manual_seed(seed))
    loss = class_confusion_loss(logits, temperature).item()
    assert loss == pytest.approx(naive(logits, temperature), abs=1e-5)
    assert max(0, 1 - b / c) - 1e-6 <= loss <= 1
    order = torch.randperm(b, generator=torch.Generator().manual_seed(seed))
    columns = torch.randperm(c, generator=torch.Generator().manual_seed(seed))
    moved = logits[order][:, columns] + 7
    assert class_confusion_loss(moved, temperature).item() == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize("c", [1, 2, 5])
def test_limits(c):
    assert class_confusion_loss(torch.zeros(6, c)).item() == pytest.approx(1 - 1 / c)
    assert class_confusion_loss(1e4 * torch.eye(c).repeat(3, 1)).item() == pytest.approx(0, abs=1e-6)


def test_a_class_that_nobody_predicts_counts_as_confused():
    """As in the limit of the formula, where its row over its sum has nothing on the diagonal."""
    rows = torch.eye(3)[[0, 1, 0, 1]]
    assert class_confusion_loss(20 * rows, 1.0).item() == pytest.approx(naive(20 * rows, 1.0), abs=1e-6)
    assert class_confusion_loss(1e4 * rows).item() == pytest.approx(1 / 3)
    assert class_confusion_loss(1e4 * torch.eye(8)[:2]).item() == pytest.approx(1 - 2 / 8)  # fewer rows than classes


def test_weights_are_constants():
    logits = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    z = logits.detach() / 2.5
    w = 1 + (z.softmax(1) * z.log_softmax(1)).sum(1).exp()

    def with_constants(x):
        p = (x / 2.5).softmax(1)
        m = (w[:, None] * p).T @ p
        m = m / m.sum(1, keepdim=True)
        return (m.sum() - m.trace()) / 3

    (ours,) = torch.autograd.grad(class_confusion_loss(logits), logits)
    (theirs,) = torch.autograd.grad(with_constants(logits), logits)
    torch.testing.assert_close(ours, theirs)
    assert torch.autograd.gradcheck(with_constants, logits)


@pytest.mark.parametrize("scale", [1e4, -1e4])
@pytest.mark.parametrize("shape", [(6, 4), (3, 8), (1, 3), (4, 1)])
def test_extreme_logits(scale, shape):
    """Also where a class has exactly no probability, and its row of the matrix would be 0/0."""
    logits = (scale * torch.randn(*shape, generator=torch.Generator().manual_seed(0))).requires_grad_()
    loss = class_confusion_loss(logits)
    assert loss.isfinite()
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()


def test_half_precision_computes_in_float32():
    logits = torch.randn(16, 5).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = class_confusion_loss(logits)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(class_confusion_loss(logits.float()).item(), abs=1e-6)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="logits has shape"):
        class_confusion_loss(torch.zeros(3))
    with pytest.raises(ValueError, match="temperature is 0"):
        class_confusion_loss(torch.zeros(3, 2), 0)
