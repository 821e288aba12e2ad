"""Two classifiers as the halves of one softmax: values, the written formulas, limits."""

import math

import pytest
import torch

from tsadapt.core import half_confusion_loss, half_logit, joint_entropy

G = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=G)


def written(z_s, z_t):
    """P_s, P_t and H(q), by the softmax over 2C."""
    p = torch.cat([z_s, z_t], 1).softmax(1)
    classes = z_s.shape[1]
    q = p[:, :classes] + p[:, classes:]
    return p[:, :classes].sum(1), p[:, classes:].sum(1), -(q * q.log()).sum(1).mean()


def test_by_hand():
    """Two classes, exp z = 1, 3 in the source's half and 2, 2 in the target's: P_s = P_t = ½ and q = 3/8, 5/8."""
    z_s, z_t = torch.tensor([[1.0, 3.0]]).log(), torch.tensor([[2.0, 2.0]]).log()
    assert half_logit(z_s, z_t).item() == pytest.approx(0)
    assert half_confusion_loss(half_logit(z_s, z_t)).item() == pytest.approx(math.log(2))
    expected = -(3 / 8 * math.log(3 / 8) + 5 / 8 * math.log(5 / 8))
    assert joint_entropy(z_s, z_t).item() == pytest.approx(expected)
    d = half_logit(z_s + math.log(3), z_t)  # P_s = ¾
    assert d.item() == pytest.approx(math.log(3))
    assert half_confusion_loss(d).item() == pytest.approx(-(math.log(3 / 4) + math.log(1 / 4)) / 2)


def test_by_the_written_formulas():
    z_s, z_t = normal(5, 4), normal(5, 4)
    p_s, p_t, h = written(z_s, z_t)
    torch.testing.assert_close(half_logit(z_s, z_t).sigmoid(), p_s)
    torch.testing.assert_close(half_confusion_loss(half_logit(z_s, z_t)), -0.5 * (p_s.log().mean() + p_t.log().mean()))
    torch.testing.assert_close(joint_entropy(z_s, z_t), h)


def test_gradients():
    z = (normal(3, 4).requires_grad_(), normal(3, 4).requires_grad_())
    assert torch.autograd.gradcheck(half_logit, z)
    assert torch.autograd.gradcheck(joint_entropy, z)
    assert torch.autograd.gradcheck(half_confusion_loss, normal(5).requires_grad_())


def test_limits_and_what_changes_nothing():
    z_s, z_t = normal(6, 3), normal(6, 3)
    torch.testing.assert_close(half_logit(z_s, z_t), -half_logit(z_t, z_s))
    torch.testing.assert_close(half_confusion_loss(half_logit(z_s, z_t)), half_confusion_loss(half_logit(z_t, z_s)))
    assert half_confusion_loss(normal(50)) > math.log(2)
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(joint_entropy(z_s, z_t), joint_entropy(z_t[:, order], z_s[:, order]))
    torch.testing.assert_close(joint_entropy(z_s, z_t), joint_entropy(z_s + 3, z_t + 3))
    # A half that is never chosen leaves the entropy of the other.
    p = z_s.softmax(1)
    torch.testing.assert_close(joint_entropy(z_s, z_t - 100), -(p * p.log()).sum(1).mean())
    assert 0 <= joint_entropy(z_s, z_t) <= math.log(3)


@pytest.mark.parametrize("size", [1e4, 3e38])
def test_sure_logits_stay_finite(size):
    """The published code adds 1e-6 where a probability is zero: here nothing is."""
    z_s, z_t = torch.tensor([[size, 0.0], [0.0, -size]]), torch.tensor([[-size, 0.0], [size, size]])
    z_s, z_t = z_s.requires_grad_(), z_t.requires_grad_()
    h = joint_entropy(z_s, z_t)
    assert h.isfinite()
    assert all(g.isfinite().all() for g in torch.autograd.grad(h, (z_s, z_t), retain_graph=True))
    if size < 1e30:
        loss = half_confusion_loss(half_logit(z_s, z_t))
        assert loss.item() == pytest.approx(size / 2, rel=1e-3)
        assert all(g.isfinite().all() for g in torch.autograd.grad(loss, (z_s, z_t)))


def test_half_precision_and_wrong_shapes():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert half_logit(torch.zeros(2, 3).bfloat16(), torch.zeros(2, 3).bfloat16()).dtype == torch.float32
    with pytest.raises(ValueError, match="that of logits_s"):
        half_logit(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="at least one sample"):
        joint_entropy(torch.zeros(0, 3), torch.zeros(0, 3))
