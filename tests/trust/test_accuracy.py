"""Estimates of accuracy, by hand and by their defining property."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsadapt.trust import (
    agreement,
    average_confidence,
    average_thresholded_confidence,
    confidence_score,
    difference_of_confidences,
    entropy_score,
)


@given(seed=st.integers(0, 1000), n=st.integers(1, 60), ties=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_threshold_balances_both_mistakes(seed, n, ties):
    """No threshold at a score, or above all, brings right rows below it and wrong ones above it closer together."""
    rng = np.random.default_rng(seed)
    score = rng.integers(0, 5, n) / 5 if ties else rng.random(n)
    right = rng.random(n) < score

    def apart(t):
        return abs(int((right & (score < t)).sum()) - int((~right & (score >= t)).sum()))

    best = min(apart(t) for t in (*score, np.inf))
    fitting = [float((score >= t).mean()) for t in (*score, np.inf) if apart(t) == best]
    found = average_thresholded_confidence(score, right, score)
    if not ties:
        assert found in fitting
        assert abs(found - right.mean()) <= (best + 1) / n + 1e-9  # on the rows themselves, their accuracy


def test_thresholds_at_the_ends():
    score, target = np.array([0.3, 0.6]), np.array([0.1, 0.5, 0.9])
    assert average_thresholded_confidence(score, np.array([False, False]), target) == 0
    assert average_thresholded_confidence(score, np.array([True, True]), target) == pytest.approx(2 / 3)
    assert np.isnan(average_thresholded_confidence(score[:0], np.zeros(0, dtype=bool), target))


def test_scores_of_probabilities():
    p = np.array([[0.7, 0.3], [1.0, 0.0]])
    assert confidence_score(p).tolist() == [0.7, 1.0]
    assert entropy_score(p) == pytest.approx([0.7 * np.log(0.7) + 0.3 * np.log(0.3), 0])
    assert average_confidence(p) == pytest.approx(0.85)


def test_difference_of_confidences_stays_a_share():
    right = np.array([True, False, True, True])
    assert difference_of_confidences(np.full(4, 0.9), right, np.full(3, 0.7)) == pytest.approx(0.75 - 0.2)
    assert difference_of_confidences(np.full(4, 0.5), right, np.ones(3)) == 1
    assert difference_of_confidences(np.ones(4), ~right, np.zeros(3)) == 0
    assert np.isnan(difference_of_confidences(np.zeros(0), right[:0], np.ones(3)))


def test_agreement():
    a = np.array([0, 1, 2, 3])
    assert agreement(a, [a, np.array([0, 1, 0, 0])]) == 0.75
    assert np.isnan(agreement(a, []))
