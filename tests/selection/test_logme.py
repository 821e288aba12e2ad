"""LogME against the evidence maximised naively, and against numbers of the published code."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_digits

from tsadapt.selection.logme import logme


def evidence(f, y, alpha, beta):
    """log p(y | F, α, β) by the formula: y is Gaussian with covariance I/β + F Fᵀ/α."""
    n = len(f)
    covariance = np.eye(n) / beta + f @ f.T / alpha
    _, determinant = np.linalg.slogdet(covariance)
    return -(n * np.log(2 * np.pi) + determinant + y @ np.linalg.solve(covariance, y)) / 2


def naive(f, labels):
    """The evidence maximised over log α and log β by a search that knows no derivative."""
    best = []
    for c in np.unique(labels):
        y = (labels == c).astype(float)
        found = minimize(
            lambda at, y=y: -evidence(f, y, *np.exp(at)), np.zeros(2), method="Nelder-Mead",
            options={"xatol": 1e-6, "fatol": 1e-9, "maxiter": 2000},
        )  # fmt: skip
        best.append(-found.fun)
    return np.mean(best) / len(f)


@pytest.mark.parametrize(("n", "k"), [(60, 5), (90, 20)])
def test_it_is_the_maximum_of_the_evidence(n, k):
    """Where it has one: with N < K a perfect fit has no noise, and the evidence rises for ever with β."""
    rng = np.random.default_rng(n)
    labels = np.arange(n) % 3
    f = rng.normal(size=(n, k))
    f[:, :3] += np.eye(3)[labels]
    assert logme(f, labels) == pytest.approx(naive(f, labels), abs=1e-4)


def test_features_of_low_rank():
    rng = np.random.default_rng(0)
    labels = np.arange(50) % 2
    seen = rng.normal(size=(50, 2)) + 3 * np.eye(2)[labels]
    f = seen @ rng.normal(size=(2, 9))
    assert logme(f, labels) == pytest.approx(naive(f, labels), abs=1e-4)


def test_numbers_of_the_published_code():
    """github.com/thuml/LogME at 56551ca, `_fit_icml`, which stops at a change of 1 %.

    Its other way, `_fit_fixed_point`, agrees where N > K; where N < K it leaves (K − N)·log α out of the determinant,
    and gives 1.238 for the third.
    """
    x, y = load_digits(return_X_y=True)
    wider = np.concatenate([x / 16, np.random.default_rng(0).normal(size=(len(x), 100))], 1)
    assert logme(x / 16, y) == pytest.approx(0.27027725170402694, abs=1e-6)
    assert logme(wider, y) == pytest.approx(0.14174099803336632, abs=1e-5)  # _fit_fixed_point
    assert logme(x[:40] / 16, y[:40]) == pytest.approx(-0.013110563453926628, abs=1e-4)


def test_it_does_not_care_for_rotations_and_names_of_classes():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 4
    f = rng.normal(size=(60, 6)) + labels[:, None]
    rotation, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    order = rng.permutation(60)
    for other in (logme(f @ rotation, labels), logme(f[order], labels[order]), logme(f, 10 - 3 * labels)):
        assert other == pytest.approx(logme(f, labels), abs=1e-9)


def test_better_features_score_higher_and_extreme_ones_stay_finite():
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    noise = rng.normal(size=(90, 5))
    scores = [logme(np.concatenate([s * np.eye(3)[labels], noise], 1), labels) for s in (0.0, 1.0, 5.0)]
    assert scores == sorted(scores)
    for f in (np.eye(3)[labels], 1e6 * noise, 1e-6 * noise, np.ones((90, 2))):
        assert np.isfinite(logme(f, labels))


@pytest.mark.parametrize(("f", "y"), [(np.zeros((3, 2)), [0, 0, 0]), (np.zeros(3), [0, 1, 0]), (np.eye(3), [0, 1])])
def test_what_cannot_be_scored(f, y):
    with pytest.raises(ValueError, match="expected features"):
        logme(f, np.array(y))
