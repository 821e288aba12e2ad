"""Temperatures against the minimum found by looking everywhere, and the calibration error by loops."""

import numpy as np
import pytest

from tsadapt.selection.logits import log_softmax, softmax
from tsadapt.trust import bias_corrected_temperature, calibration_error, fit_temperature


def rows(n=200, classes=3, scale=3.0, seed=0):
    """Logits that are `scale` times too large."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, classes)) * 1.5
    y = np.array([rng.choice(classes, p=p) for p in softmax(z)])
    return scale * z, y


def loss(z, y, t, weights, smoothing):
    total = 0.0
    for i in range(len(y)):
        log_p = log_softmax(z[i : i + 1] / t)[0]
        target = [(1 - smoothing) * (c == y[i]) + smoothing / z.shape[1] for c in range(z.shape[1])]
        total -= weights[i] * sum(a * b for a, b in zip(target, log_p, strict=True))
    return total / sum(weights)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_no_other_temperature_is_better(smoothing):
    z, y = rows()
    w = np.random.default_rng(1).random(len(y))
    t = fit_temperature(z, y, w, smoothing)
    best = loss(z, y, t, w, smoothing)
    assert all(best <= loss(z, y, t * f, w, smoothing) + 1e-7 for f in (0.2, 0.9, 0.99, 1.01, 1.1, 5))


def test_it_finds_the_temperature_that_was_there():
    z, y = rows(n=5000)
    assert fit_temperature(z, y) == pytest.approx(3, rel=0.1)
    assert fit_temperature(2 * z, y) == pytest.approx(2 * fit_temperature(z, y), rel=1e-3)


def test_rows_that_are_all_right_do_not_ask_for_certainty():
    y = np.arange(30) % 3
    z = 2.0 * np.eye(3)[y]
    t = fit_temperature(z, y)
    assert 0.06 < t < 2
    assert softmax(z / t).max() == pytest.approx(1 - 1 / 32 + 1 / 96, abs=2e-3)  # 1 − ε + ε/C, ε = 1/(30 + 2)
    assert fit_temperature(z[:0], y[:0]) == 1
    assert np.isfinite(fit_temperature(1e4 * z, y))


def test_weights_count_rows_again():
    z, y = rows(40)
    w = np.random.default_rng(1).integers(0, 4, 40)
    assert fit_temperature(z, y, w, 0.0) == pytest.approx(
        fit_temperature(np.repeat(z, w, axis=0), np.repeat(y, w), None, 0.0), rel=1e-3
    )


def test_bias_correction_makes_mean_probabilities_the_shares():
    z, y = rows(400)
    z = z + np.array([1.0, -0.5, 0.0])
    t, b = bias_corrected_temperature(z, y, smoothing=0.0)
    p = softmax(z / t + b)
    assert p.mean(0) == pytest.approx(np.bincount(y) / len(y), abs=1e-4)
    assert b.sum() == pytest.approx(0, abs=1e-9)
    off = np.array([0.1, 0, -0.1])
    nll = -log_softmax(z / t + b)[np.arange(len(y)), y].mean()
    for other_t, other_b in ((1.05 * t, b), (0.95 * t, b), (t, b + off), (t, b - off)):
        assert nll <= -log_softmax(z / other_t + other_b)[np.arange(len(y)), y].mean() + 1e-9
    assert bias_corrected_temperature(z[:0], y[:0])[1].tolist() == [0, 0, 0]


def test_calibration_error_by_loops():
    rng = np.random.default_rng(0)
    p, right = rng.random(300), rng.random(300) < 0.6
    expected = 0.0
    for b in range(15):
        mine = [i for i in range(300) if b / 15 <= p[i] < (b + 1) / 15 or (b == 14 and p[i] == 1)]
        if mine:
            expected += len(mine) / 300 * abs(np.mean([right[i] for i in mine]) - np.mean([p[i] for i in mine]))
    assert calibration_error(p, right) == pytest.approx(expected)
    assert calibration_error(np.ones(4), np.ones(4, dtype=bool)) == 0
    assert calibration_error(np.ones(4), np.zeros(4, dtype=bool)) == 1
    assert np.isnan(calibration_error(p[:0], right[:0]))
