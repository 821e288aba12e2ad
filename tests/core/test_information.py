import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsadapt.core import PredictionMemory, conditional_entropy, mutual_information_loss


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


def test_a_marginal_by_hand():
    """−mean KL(p ‖ a) with p = (½, ½) and a = (¼, ¾): −½ log 2 − ½ log ⅔ = −0.1438."""
    loss = mutual_information_loss(torch.zeros(3, 2), marginal=torch.tensor([0.25, 0.75]))
    assert loss.item() == pytest.approx(-0.5 * math.log(2) - 0.5 * math.log(2 / 3), abs=1e-6)


def test_the_marginal_of_the_batch_itself_changes_neither_value_nor_gradient():
    logits = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    prior = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    for given_prior in (None, prior):
        losses = [
            mutual_information_loss(logits, given_prior, marginal)
            for marginal in (None, logits.detach().softmax(1).mean(0))
        ]
        torch.testing.assert_close(*losses)
        torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in losses))


def test_gradcheck_with_a_marginal():
    logits = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    a = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda z: mutual_information_loss(z, marginal=a), (logits,))


def test_a_marginal_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="marginal has shape"):
        mutual_information_loss(torch.zeros(3, 2), marginal=torch.ones(3))


def test_the_memory_of_predictions_keeps_the_latest_of_each_row():
    generator = torch.Generator().manual_seed(0)
    memory, kept = PredictionMemory(9, 4), dict[int, torch.Tensor]()
    for _ in range(20):
        index = torch.randint(9, (5,), generator=generator)
        p = torch.randn(5, 4, generator=generator).softmax(1)
        memory.write(index, p)
        for row, one in reversed([*zip(index.tolist(), p, strict=True)]):
            kept[row] = one
        torch.testing.assert_close(memory.mean(), torch.stack([*kept.values()]).mean(0))
    again = PredictionMemory(9, 4)
    again.load_state_dict(memory.state_dict())
    assert torch.equal(again.mean(), memory.mean())
    index = torch.tensor([[*kept][:2], [*kept][2:4]])
    assert torch.equal(memory.rows(index), torch.stack([kept[row] for row in index.flatten().tolist()]).view(2, 2, 4))
    assert torch.equal(again.rows(index), memory.rows(index))


def test_a_large_memory_of_predictions_keeps_half_precision(monkeypatch):
    monkeypatch.setattr("tsadapt.core.information.HALF_ABOVE", 100)
    memory = PredictionMemory(20, 4)
    assert memory.predictions.dtype == torch.float16
    memory.write(torch.arange(20), torch.full((20, 4), 0.25))
    assert memory.half().mean().tolist() == [0.25] * 4
    assert memory.rows(torch.tensor([[3]])).dtype == torch.float32


@given(seed=st.integers(0, 1000), b=st.integers(1, 9), c=st.integers(1, 6), scale=st.sampled_from([0.1, 3.0, 100.0]))
@settings(max_examples=40, deadline=None)
def test_the_conditional_entropy_equals_the_formula_within_its_range(seed, b, c, scale):
    logits = scale * torch.randn(b, c, generator=torch.Generator().manual_seed(seed))
    rows = logits.double().softmax(1).tolist()
    naive = sum(-v * math.log(v) for row in rows for v in row if v > 0) / b
    entropy = conditional_entropy(logits).item()
    assert entropy == pytest.approx(naive, abs=1e-5)
    assert -1e-6 <= entropy <= math.log(c) + 1e-5
    order = torch.randperm(b, generator=torch.Generator().manual_seed(seed))
    assert conditional_entropy(logits[order] + 7).item() == pytest.approx(entropy, abs=1e-5)


def test_limits_and_gradient_of_the_conditional_entropy():
    assert conditional_entropy(torch.zeros(3, 5)).item() == pytest.approx(math.log(5))
    assert conditional_entropy(1e4 * torch.eye(5)).item() == 0
    assert conditional_entropy(torch.tensor([[1e4], [-1e4]])).item() == 0  # one class
    logits = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(conditional_entropy, (logits,))
    for scale in (1e4, -1e4):
        extreme = (scale * logits.detach().float()).requires_grad_()
        assert torch.autograd.grad(conditional_entropy(extreme), extreme)[0].isfinite().all()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert conditional_entropy(torch.randn(3, 4).bfloat16()).dtype == torch.float32
    with pytest.raises(ValueError, match="logits has shape"):
        conditional_entropy(torch.zeros(3))
