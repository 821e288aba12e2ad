"""AdaBN in the estimators: as a method, and for a new target after any fit."""

import numpy as np
import pytest

from tsadapt import DomainAdaptationClassifier, TSAClassifier


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = (3 * rng.normal(size=(3, 6)))[y] + rng.normal(size=(300, 6))
    scale = np.array([1, 2, 0.5, 3, 1, 0.3])
    return x, y, x * scale + 5, 2 * x * scale - 7


def made(method, **more):
    return DomainAdaptationClassifier(method, steps=60, random_state=0, **{"bottleneck": 16, **more})


def test_as_a_method(data):
    x, y, x_t, _ = data
    assert made("source-only").fit(x, y, X_target=x_t).score(x_t, y) < 0.8
    adabn = made("adabn").fit(x, y, X_target=x_t)
    assert adabn.score(x_t, y) > 0.95
    plain = made("source-only").fit(x, y, X_target=x_t)
    np.testing.assert_allclose(plain.adapt_bn(x_t).predict_proba(x_t), adabn.predict_proba(x_t), atol=1e-5)


def test_for_a_new_target_after_any_fit(data):
    x, y, x_t, x_new = data
    clf = TSAClassifier(steps=60, bottleneck=16, random_state=0).fit(x, y, X_target=x_t)
    before = clf.predict_proba(x_new)
    adapted = clf.adapt_bn(x_new)
    assert isinstance(adapted, TSAClassifier)
    assert adapted.score(x_new, y) > max(clf.score(x_new, y), 0.9)
    np.testing.assert_array_equal(clf.predict_proba(x_new), before)
    assert adapted.get_params() == clf.get_params()


def test_what_cannot_be_normalised_is_refused(data):
    x, y, x_t, x_new = data
    with pytest.raises(ValueError, match=r"adabn.*network linear has none: use mlp \(an estimator's bottleneck\)"):
        made("adabn", bottleneck=None).fit(x, y, X_target=x_t)
    with pytest.raises(ValueError, match="the target has one row"):
        made("adabn").fit(x, y, X_target=x_t[:1])
    with pytest.raises(ValueError, match="no batch normalisation"):
        made("source-only", bottleneck=None).fit(x, y, X_target=x_t).adapt_bn(x_new)
    with pytest.raises(ValueError, match="one row"):
        made("source-only").fit(x, y, X_target=x_t).adapt_bn(x_new[:1])
    with pytest.raises(ValueError, match="features"):
        made("source-only").fit(x, y, X_target=x_t).adapt_bn(x_new[:, :2])
