import dataclasses

import numpy as np
import pytest
from scipy.stats import norm
from tests.selection.pools import candidate

from tsadapt.selection import VALIDATORS
from tsadapt.selection.dev import dev_risk, weighted_risk
from tsadapt.selection.importance import effective_sample_size, importance_weights, weighting


def test_a_constant_loss_is_the_risk_whatever_the_weights():
    weights = np.random.default_rng(0).lognormal(sigma=2, size=500)
    assert dev_risk(np.full(500, 0.37), weights) == pytest.approx(0.37, abs=1e-12)


def test_weights_of_mean_one_and_unit_weights():
    rng = np.random.default_rng(1)
    losses, weights = rng.random(300), rng.lognormal(size=300)
    weights /= weights.mean()
    assert dev_risk(losses, weights) == pytest.approx((weights * losses).mean(), abs=1e-12)
    assert dev_risk(losses, np.ones(300)) == pytest.approx(losses.mean(), abs=1e-12)
    assert dev_risk(np.array([0.5]), np.array([2.0])) == 1.0  # one row: no variance to remove
    for equal in (0.1, 1e-6):  # equal but for rounding
        assert dev_risk(losses, np.full(300, equal)) == pytest.approx(equal * losses.mean())


def test_by_hand():
    # wl = (0, 2), w = (1, 2): Cov = 1, Var = 1/2, η = −2; R = 1 − 2·1.5 + 2 = 0.
    assert dev_risk(np.array([0.0, 1.0]), np.array([1.0, 2.0])) == pytest.approx(0.0)
    # Σ w l / Σ w = (0·1 + 1·2)/(1 + 2)
    assert weighted_risk(np.array([0.0, 1.0]), np.array([1.0, 2.0])) == pytest.approx(2 / 3)
    # Of weights with mean 1 there is nothing to correct: DEV of (2/3, 4/3) is the self-normalised risk.
    assert dev_risk(np.array([0.0, 1.0]), np.array([2 / 3, 4 / 3])) == pytest.approx(2 / 3)


def test_dev_is_a_regression_read_at_a_weight_of_one():
    """Whatever the mean weight: wl = a + b w, fitted by least squares, at w = 1."""
    rng = np.random.default_rng(2)
    for scale in (0.05, 1, 3):
        losses, weights = rng.random(50), scale * rng.lognormal(size=50)
        slope, intercept = np.polyfit(weights, weights * losses, 1)
        assert dev_risk(losses, weights) == pytest.approx(intercept + slope)


def test_iwcv_does_not_care_for_the_scale_of_the_weights():
    """Domains further apart have smaller weights, which must not look like a smaller risk."""
    p = candidate(wrong=0.3)
    log_p = p.logits_v - np.log(np.exp(p.logits_v).sum(1, keepdims=True))
    heavy = 0.0
    for i, label in enumerate(p.labels_v):
        heavy -= p.importance[i] * log_p[i, label]
    expected = heavy / sum(p.importance)
    for scale in (1, 0.05):
        scaled = dataclasses.replace(p)
        scaled.__dict__["importance"] = scale * p.importance
        assert VALIDATORS["iwcv"](scaled) == pytest.approx(expected)
    flat = dataclasses.replace(p, logits_v=np.zeros_like(p.logits_v))
    assert VALIDATORS["iwcv"](flat) == pytest.approx(np.log(p.classes))  # a constant loss is its own risk


def test_closer_to_the_target_risk_than_iwcv_over_repeats():
    """Source N(0, 1), target N(1, 1): w(x) = exp(x − 1/2). The loss is 1 beyond 0.5."""
    truth = 1 - norm.cdf(0.5 - 1)
    dev_error, iwcv_error = [], []
    for seed in range(200):
        x = np.random.default_rng(seed).normal(size=200)
        weights, losses = np.exp(x - 0.5), (x > 0.5).astype(float)
        dev_error.append(dev_risk(losses, weights) - truth)
        iwcv_error.append((weights * losses).mean() - truth)
    assert np.mean(np.square(dev_error)) < 0.5 * np.mean(np.square(iwcv_error))
    assert abs(np.mean(dev_error)) < 0.02


def test_the_density_ratio_of_gaussians_is_found():
    rng = np.random.default_rng(3)
    source, target, at = rng.normal(size=(2000, 2)), rng.normal((1, 0), size=(2000, 2)), rng.normal(size=(400, 2))
    found = importance_weights(source, target, at)
    true = np.exp(at[:, 0] - 0.5)
    assert np.corrcoef(found, true)[0, 1] > 0.95
    assert found.mean() == pytest.approx(1, abs=0.2)
    assert importance_weights(source, target[:500], at).mean() == pytest.approx(1, abs=0.2)  # n_s/n_t corrects


@pytest.mark.parametrize("classifier", ["linear", "mlp"])
def test_domains_apart_give_bounded_weights(classifier):
    rng = np.random.default_rng(4)
    source, target = rng.normal(size=(60, 3)), rng.normal(size=(60, 3)) + 50
    at = np.concatenate([source[:20], target[:1]])
    weights = importance_weights(source, target, at, classifier=classifier)
    # The last row alone looks like the target. Unclipped it would have all the weight, 21 times the mean.
    assert np.isfinite(weights).all()
    assert weights[:20].max() < 0.1 * weights[20]
    unclipped = 21 / np.sqrt(21) * weights[20]
    assert weights[20] == pytest.approx(np.sqrt(21) * (weights[:20].sum() + unclipped) / 21, rel=0.2)


def test_effective_sample_size_is_reported():
    assert effective_sample_size(np.ones(7)) == pytest.approx(7)
    assert effective_sample_size(np.array([5.0, 0, 0])) == 1
    said = weighting(candidate().importance)
    assert 1 <= said.effective_sample_size <= 40
    assert said.largest >= said.mean > 0
    assert np.isnan(weighting(np.zeros(0)).mean)


def test_few_rows_and_wide_features_do_no_harm():
    rng = np.random.default_rng(5)
    assert importance_weights(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((4, 3))).tolist() == [1] * 4
    assert importance_weights(np.zeros((9, 3)), np.zeros((9, 3)), np.zeros((0, 3))).shape == (0,)
    wide = rng.normal(size=(300, 400))
    assert importance_weights(wide, wide + 0.1, wide[:9]).shape == (9,)


def test_the_network_of_devs_code():
    good, bad = candidate(size=6), candidate(size=0.1)
    scores = VALIDATORS["dev-mlp"].scores([good, bad])
    assert scores[0] < scores[1]
