"""Losses that favour even classes, with class shares to favour instead."""

import math

import pytest
import torch
from torch.nn import functional as F

from tsadapt.core import (
    attraction_dispersion_loss,
    balanced_predictions,
    class_confusion_loss,
    mutual_information_loss,
    nuclear_norm,
    nuclear_norm_loss,
)

PRIOR = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def dispersion(logits, prior=None):
    """The second sum of AaD alone."""
    near = torch.zeros(len(logits), 1, logits.shape[1], dtype=logits.dtype)
    nobody = torch.zeros(len(logits), 1, dtype=torch.bool)
    return attraction_dispersion_loss(logits, near, nobody, prior=prior)


def confusion(logits, prior=None):
    return class_confusion_loss(logits, 1.0, prior)


LOSSES = {
    "mi": mutual_information_loss, "bnm": nuclear_norm_loss, "mcc": confusion, "aad": dispersion,
}  # fmt: skip
losses = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@losses
def test_equal_shares_change_nothing(loss):
    logits = normal(7, 3)
    torch.testing.assert_close(loss(logits, torch.full((3,), 1 / 3, dtype=torch.float64)), loss(logits))
    torch.testing.assert_close(
        balanced_predictions(logits, torch.full((3,), 1 / 3)), balanced_predictions(logits), atol=1e-7, rtol=1e-6
    )


@pytest.mark.parametrize("name", ["mi", "bnm", "aad"])
def test_gradients(name):
    logits = normal(6, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: LOSSES[name](z, PRIOR), logits)


def test_the_gradient_of_confusion():
    """Its weights are constants."""
    logits = normal(6, 3).requires_grad_()
    w = 1 + (logits.softmax(1) * logits.log_softmax(1)).sum(1).exp().detach()
    p = logits.softmax(1)
    m = p.T @ (w[:, None] * p)
    expected = 1 - (PRIOR * m.diagonal() / m.sum(1)).sum()
    torch.testing.assert_close(confusion(logits, PRIOR), expected)
    ours, theirs = (torch.autograd.grad(loss, logits)[0] for loss in (confusion(logits, PRIOR), expected))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["mi", "bnm", "aad"])
def test_certain_predictions_of_the_shares_are_best(name):
    """Of all ways to put twenty rows into three classes with certainty, the best one has the shares."""
    found = {}
    for a in range(21):
        for b in range(21 - a):
            rows = torch.tensor([0] * a + [1] * b + [2] * (20 - a - b))
            found[a, b] = LOSSES[name](1e3 * F.one_hot(rows, 3).double(), PRIOR).item()
    best = min(found, key=found.__getitem__)
    if name == "aad":  # a row is not compared with itself: Σ n_c (n_c − 1)/π_c is least a little beside
        assert max(abs(best[0] - 10), abs(best[1] - 6)) <= 1
    else:
        assert best == (10, 6)


def test_values_by_hand():
    certain = 1e4 * torch.eye(2, dtype=torch.float64)[[0, 0, 0, 1]]
    prior = torch.tensor([0.75, 0.25])
    # ‖P diag(√(2π))‖_* = √(3·1.5) + √(1·0.5) = 2√2, the most there is, over min(4, 2).
    assert nuclear_norm_loss(certain, prior).item() == pytest.approx(-math.sqrt(8) / 2)
    # Rows of class 0 meet two others each, of weight 1/(2·0.75); the fourth row meets none.
    assert dispersion(certain, prior).item() == pytest.approx(3 * 2 / 1.5 / 4)
    # A class that nobody predicts counts as confused, by its share.
    assert confusion(certain[:3], prior).item() == pytest.approx(0.25)
    # Columns sum to C·π.
    assert balanced_predictions(certain, prior).sum(0).tolist() == pytest.approx([1.5, 0.5])


def test_by_loops():
    logits = normal(5, 3)
    p = logits.softmax(1)
    scaled = torch.tensor([[float(p[j, c] * math.sqrt(3 * PRIOR[c])) for c in range(3)] for j in range(5)])
    assert nuclear_norm_loss(logits, PRIOR).item() == pytest.approx(-nuclear_norm(scaled.double()).item() / 3, abs=1e-6)
    w = [1 + math.exp(sum(v * math.log(v) for v in row)) for row in p.tolist()]
    total = 0.0
    for c in range(3):
        row = [sum(w[j] * float(p[j, c] * p[j, k]) for j in range(5)) for k in range(3)]
        total += float(PRIOR[c]) * row[c] / sum(row)
    assert confusion(logits, PRIOR).item() == pytest.approx(1 - total)
    pairs = sum(
        float(p[i, c] * p[j, c] / (3 * PRIOR[c])) for i in range(5) for j in range(5) if i != j for c in range(3)
    )
    assert dispersion(logits, PRIOR).item() == pytest.approx(pairs / 5)


@losses
@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_extreme_logits(loss, scale):
    logits = (scale * normal(6, 3)).float().requires_grad_()
    value = loss(logits, torch.tensor([0.998, 0.001, 0.001]))
    assert value.isfinite()
    assert torch.autograd.grad(value, logits)[0].isfinite().all()


@pytest.mark.parametrize("wrong", [torch.ones(2), torch.tensor([1.0, 0.0, 0.0])])
def test_shares_that_are_none_are_refused(wrong):
    for loss in (*LOSSES.values(), balanced_predictions):
        with pytest.raises(ValueError, match="expected 3 positive frequencies"):
            loss(normal(4, 3), wrong)
