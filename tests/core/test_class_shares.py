"""Class shares by EM: the likelihood that it climbs, a case by hand, and what it cannot know."""

import pytest
import torch

from tsadapt.core import class_shares_by_em


def predictions(n=40, classes=3, seed=0):
    return torch.randn(n, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).softmax(1)


def likelihood(p, prior, share):
    """Σ_j log Σ_c π_c/π⁰_c p_jc."""
    return float(torch.log((p * share / prior).sum(1)).sum())


def test_by_hand():
    """Σ log(0.8 π + 0.2 (1 − π)) over three rows and log(0.2 π + 0.8 (1 − π)) is largest where 0.2 + 0.6 π = 3/4."""
    p = torch.tensor([[0.8, 0.2]] * 3 + [[0.2, 0.8]])
    share = class_shares_by_em(p, torch.tensor([0.5, 0.5]), tolerance=1e-12)
    assert share.tolist() == pytest.approx([0.55 / 0.6, 0.05 / 0.6], abs=1e-6)


def test_one_step_by_loops():
    p, prior = predictions(5), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    once = class_shares_by_em(p, prior, steps=1)
    assert once.tolist() == pytest.approx(p.mean(0).tolist())  # at π = π⁰ the predictions are as they are
    twice = class_shares_by_em(p, prior, steps=2)
    expected = [0.0] * 3
    for j in range(5):
        joint = [float(once[c] / prior[c] * p[j, c]) for c in range(3)]
        for c in range(3):
            expected[c] += joint[c] / sum(joint) / 5
    assert twice.tolist() == pytest.approx(expected)


def test_no_other_shares_are_more_likely():
    p, prior = predictions(), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    found = class_shares_by_em(p, prior, tolerance=1e-12, steps=10_000)
    best = likelihood(p, prior, found)
    for seed in range(50):
        other = predictions(1, seed=seed)[0]
        assert likelihood(p, prior, other) <= best + 1e-9
        assert likelihood(p, prior, 0.99 * found + 0.01 * other) <= best + 1e-9


def test_weights_are_rows_counted_again():
    p, prior = predictions(6), torch.full((3,), 1 / 3, dtype=torch.float64)
    weight = torch.tensor([2.0, 0.0, 1.0, 1.0, 3.0, 1.0])
    again = p.repeat_interleave(weight.long(), dim=0)
    torch.testing.assert_close(class_shares_by_em(p, prior, weight), class_shares_by_em(again, prior))


def test_extremes():
    prior = torch.tensor([0.5, 0.5, 0.0])
    certain = torch.eye(3)[[0, 0, 0, 1]]
    assert class_shares_by_em(certain, prior).tolist() == [0.75, 0.25, 0.0]
    assert class_shares_by_em(torch.full((4, 3), 1 / 3), torch.ones(3)).tolist() == pytest.approx([1 / 3] * 3)
    only_absent = class_shares_by_em(torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]), prior)
    assert only_absent.isfinite().all()
    assert only_absent[2] == 0


def test_what_is_refused():
    with pytest.raises(ValueError, match="expected 3 shares"):
        class_shares_by_em(predictions(), torch.ones(2))
    with pytest.raises(ValueError, match="no rows"):
        class_shares_by_em(predictions()[:0], torch.ones(3))
    with pytest.raises(ValueError, match="one weight for each"):
        class_shares_by_em(predictions(), torch.ones(3), torch.ones(2))
