import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsadapt.core import mutual_information_loss


def naive(logits):
    p = logits.double().softmax(1)
    mean = p.mean(0)
    conditional = sum(-float(v) * math.log(float(v)) for v in p.flatten() if v > 0) / len(p)
    return sum(float(v) * math.log(float(v)) for v in mean if v > 0) + conditional


@given(seed=st.integers(0, 1000), b=st.integers(1, 9), c=st.integers(1, 6), scale=st.sampled_from([0.1, 3.0, 100.0]))
@settings(max_examples=40, deadline=None)
def test_equals_the_formula_within_its_range(seed, b, c, scale):
    logits = scale * torch.randn(b, c, generator=torch.Generator().manual_seed(seed))
    loss = mutual_information_loss(logits).item()
    assert loss == pytest.approx(naive(logits), abs=1e-5)
    assert -math.log(min(b, c)) - 1e-5 <= loss <= 1e-5
    order = torch.randperm(b, generator=torch.Generator().manual_seed(seed))
    assert mutual_information_loss(logits[order] + 7).item() == pytest.approx(loss, abs=1e-5)


def test_limits():
    assert mutual_information_loss(torch.eye(5).repeat(3, 1) * 1e4).item() == pytest.approx(-math.log(5))
    assert mutual_information_loss(torch.tensor([[1e4, 0, 0]]).repeat(6, 1)).item() == pytest.approx(0)
    assert mutual_information_loss(torch.randn(1, 3).repeat(6, 1)).item() == pytest.approx(0, abs=1e-6)


def test_gradcheck():
    logits = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(mutual_information_loss, (logits,))


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_extreme_logits(scale):
    logits = (scale * torch.randn(5, 4, generator=torch.Generator().manual_seed(0))).requires_grad_()
    loss = mutual_information_loss(logits)
    assert loss.isfinite()
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()


def test_half_precision_computes_in_float32():
    logits = torch.randn(64, 10)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = mutual_information_loss(logits.bfloat16())
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(mutual_information_loss(logits.bfloat16().float()).item(), abs=1e-6)


@pytest.mark.parametrize("shape", [(4,), (0, 3), (2, 3, 4)])
def test_wrong_shape_is_named(shape):
    with pytest.raises(ValueError, match="logits has shape"):
        mutual_information_loss(torch.zeros(shape))


def test_prior():
    logits = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    uniform = torch.full((4,), 0.25)
    torch.testing.assert_close(mutual_information_loss(logits, uniform), mutual_information_loss(logits))
    prior = torch.tensor([0.7, 0.1, 0.1, 0.1])
    p = logits.softmax(1)
    expected = (p.mean(0) * (p.mean(0) / prior).log()).sum() - math.log(4) - (p * p.log()).sum(1).mean()
    torch.testing.assert_close(mutual_information_loss(logits, prior), expected)
    assert torch.autograd.gradcheck(lambda x: mutual_information_loss(x, prior.double()), (logits,))
    for wrong in (torch.ones(3), torch.tensor([0.5, 0.5, 0.0, 0.0])):
        with pytest.raises(ValueError, match="expected 4 positive frequencies"):
            mutual_information_loss(logits, wrong)
