"""Class shares against QuaPy's numbers, against search, and as intervals."""

import json
from pathlib import Path

import numpy as np
import pytest

from tsadapt.selection.logits import softmax
from tsadapt.trust import (
    Interval,
    bbse_shares,
    bias_corrected_temperature,
    em_shares,
    interval_of,
    label_shares,
    share_intervals,
    share_notes,
)

QUAPY = json.loads((Path(__file__).parent / "quapy.json").read_text())
"""Made once; `source` says by what."""

Z_V, Y_V, Z_T = (np.array(QUAPY[name]) for name in ("logits_v", "labels_v", "logits_t"))


def test_bias_corrected_probabilities_are_those_of_quapy():
    t, b = bias_corrected_temperature(Z_V, Y_V, smoothing=0.0)
    assert softmax(Z_T / t + b)[:5] == pytest.approx(np.array(QUAPY["bcts"]), abs=2e-3)


def test_em_is_that_of_quapy(monkeypatch):
    monkeypatch.setattr(
        "tsadapt.trust.shares.bias_corrected_temperature", lambda z, y: bias_corrected_temperature(z, y, smoothing=0.0)
    )
    assert em_shares(Z_V, Y_V, Z_T) == pytest.approx(np.array(QUAPY["em_bcts"]), abs=2e-3)
    monkeypatch.setattr("tsadapt.trust.shares.bias_corrected_temperature", lambda z, y: (1.0, np.zeros(3)))
    assert em_shares(Z_V, Y_V, Z_T) == pytest.approx(np.array(QUAPY["em"]), abs=1e-4)


def test_bbse_is_that_of_quapy():
    found = bbse_shares(Z_V.argmax(1), Y_V, Z_T.argmax(1), 3)
    assert found == pytest.approx(np.array(QUAPY["acc"]), abs=1e-4)


def test_both_come_near_the_truth():
    assert em_shares(Z_V, Y_V, Z_T) == pytest.approx(np.array(QUAPY["true"]), abs=0.08)
    assert bbse_shares(Z_V.argmax(1), Y_V, Z_T.argmax(1), 3) == pytest.approx(np.array(QUAPY["true"]), abs=0.08)


def test_bbse_at_the_edge_of_the_simplex():
    """Where no shares explain the predictions, the nearest ones do: found by search too."""
    y = np.repeat(np.arange(3), 40)
    rng = np.random.default_rng(0)
    guess = np.where(rng.random(120) < 0.3, rng.integers(0, 3, 120), y)
    target = np.array([0] * 95 + [1] * 4 + [2] * 1)
    k = np.array([[np.mean(guess[y == j] == i) for j in range(3)] for i in range(3)])
    q = np.array([0.95, 0.04, 0.01])
    grid = [np.array([a, b, 100 - a - b]) / 100 for a in range(101) for b in range(101 - a)]
    best = min(grid, key=lambda share: float(((k @ share - q) ** 2).sum()))
    found = bbse_shares(guess, y, target, 3)
    assert found.sum() == pytest.approx(1)
    assert found == pytest.approx(best, abs=0.011)


def test_a_class_without_held_out_rows_is_taken_as_predicted_right():
    y = np.array([0, 0, 1, 1])
    assert bbse_shares(y, y, np.array([0, 2, 2, 1]), 3) == pytest.approx([0.25, 0.25, 0.5])


def test_rows_without_labels_are_enough_for_em_to_say_something():
    assert em_shares(Z_V[:0], Y_V[:0], Z_T).sum() == pytest.approx(1)


def test_intervals_shrink_with_rows_and_hold():
    rng = np.random.default_rng(0)
    held = 0
    for seed in range(40):
        guess = (rng.random(200) < 0.3).astype(int)
        first, second = share_intervals(lambda v, t, g=guess: label_shares(g[t], 2), 0, 200, seed=seed)
        held += 0.3 in second
        assert first.value + second.value == pytest.approx(1)
    assert 30 <= held <= 40
    many = np.arange(20_000) % 2
    wide = share_intervals(lambda v, t: label_shares(many[t], 2), 0, 20_000)[0]
    assert wide.high - wide.low < 0.05
    assert interval_of(0.9, np.array([0.1, 0.2])).high == 0.9  # the value is part of it


def test_notes_name_what_is_uneven():
    def shares(*values):
        return [Interval(v, v, v) for v in values]

    even = np.full(4, 0.25)
    assert share_notes(shares(0.3, 0.3, 0.2, 0.2), even, "abcd") == []
    missing, dominant = share_notes(shares(0.8, 0.2, 0.0, 0.0), even, "abcd")
    assert missing == "The target seems to have hardly any rows of c, d."
    assert dominant == "80% of the target seem to be a, and 25% of the source."
    uneven = np.array([0.8, 0.2, 0.0, 0.0])
    assert share_notes(shares(0.8, 0.2, 0.0, 0.0), uneven, "abcd") == []  # as in the source


def test_a_class_that_is_not_there_is_named_although_networks_predict_it():
    unsure = [Interval(0.5, 0.3, 0.7), Interval(0.5, 0.3, 0.7), Interval(0.0, 0.0, 0.3)]
    even = np.full(3, 1 / 3)
    assert share_notes(unsure, even, "abc") == []
    there = np.array([True, True, False])
    assert share_notes(unsure, even, "abc", there) == ["The target seems to have hardly any rows of c."]
    assert share_notes(unsure, np.array([0.5, 0.5, 0.0]), "abc", there) == []  # the source lacks it too
