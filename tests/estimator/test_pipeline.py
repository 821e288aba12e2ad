"""In a pipeline the target goes the way of the source, or it is refused."""

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from tsadapt import TSAClassifier, make_adaptation_pipeline


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    x = 1000 * (3 * np.eye(3, 6)[y] + rng.normal(size=(150, 6))) + 5000
    return x, y, x + 700


def tsa():
    return TSAClassifier(steps=60, bottleneck=8, random_state=0)


def by_hand(x, y, x_t):
    scaler = StandardScaler().fit(x)
    return tsa().fit(scaler.transform(x), y, X_target=scaler.transform(x_t)).predict_proba(scaler.transform(x_t))


def test_a_plain_pipeline_refuses_a_target_it_would_leave_untransformed(data):
    x, y, x_t = data
    with pytest.raises(ValueError, match=r"standardscaler.*make_adaptation_pipeline.*transform_input"):
        make_pipeline(StandardScaler(), tsa()).fit(x, y, tsaclassifier__X_target=x_t)


def test_both_remedies_are_the_steps_done_by_hand(data):
    x, y, x_t = data
    ours = make_adaptation_pipeline(StandardScaler(), tsa()).fit(x, y, X_target=x_t)
    np.testing.assert_array_equal(ours.predict_proba(x_t), by_hand(*data))
    np.testing.assert_array_equal(clone(ours).fit(x, y, X_target=x_t).predict_proba(x_t), by_hand(*data))
    with sklearn.config_context(enable_metadata_routing=True):
        steps = [("scale", StandardScaler()), ("tsa", tsa().set_fit_request(X_target=True))]
        theirs = Pipeline(steps, transform_input=["X_target"]).fit(x, y, X_target=x_t)
    np.testing.assert_array_equal(theirs.predict_proba(x_t), by_hand(*data))
    assert (ours.predict(x_t) == y).mean() > 0.9


def test_every_step_is_passed(data):
    x, y, x_t = data
    model = make_adaptation_pipeline(StandardScaler(), PCA(3), tsa()).fit(x, y, X_target=x_t)
    assert model[-1].n_features_in_ == 3
    assert (model.predict(x_t) == y).mean() > 0.9


def test_a_genuine_shift_is_never_refused(data):
    x, y, x_t = data
    tsa().fit(x, y, X_target=100 * x_t + 1e6)
    make_pipeline("passthrough", tsa()).fit(x, y, tsaclassifier__X_target=100 * x_t)
    make_adaptation_pipeline(StandardScaler(), tsa()).fit(x, y, X_target=100 * x_t + 1e6)


def test_both_domains_at_once(data):
    x, y, x_t = data
    both, labels = np.concatenate([x, x_t]), np.concatenate([y, np.full(len(x_t), -1)])
    domain = np.repeat([1, -2], [len(x), len(x_t)])
    model = make_adaptation_pipeline(StandardScaler(), tsa()).fit(both, labels, sample_domain=domain)
    assert (model.predict(x_t) == y).mean() > 0.9


def test_the_last_step_takes_a_target(data):
    for last in (LogisticRegression(), GridSearchCV(tsa(), {"beta": [0.1]})):
        with pytest.raises(TypeError, match=f"adapts to X_target, and {type(last).__name__} takes none"):
            make_adaptation_pipeline(StandardScaler(), last)


def test_weights_reach_the_last_step_alone_unless_another_asks_for_them(data):
    x, y, x_t = data
    weight = np.where(y == 0, 3.0, 1.0)
    found = make_adaptation_pipeline(StandardScaler(), PCA(3), tsa()).fit(x, y, X_target=x_t, sample_weight=weight)
    before = Pipeline([("scale", StandardScaler()), ("reduce", PCA(3))]).fit(x)
    last = tsa().fit(before.transform(x), y, X_target=before.transform(x_t), sample_weight=weight)
    np.testing.assert_array_equal(found.predict_proba(x_t), last.predict_proba(before.transform(x_t)))
    with sklearn.config_context(enable_metadata_routing=True):
        asks = StandardScaler().set_fit_request(sample_weight=True)
    found = make_adaptation_pipeline(asks, tsa()).fit(x, y, X_target=x_t, sample_weight=weight)
    np.testing.assert_array_equal(found[0].mean_, StandardScaler().fit(x, sample_weight=weight).mean_)


class Adapting(TransformerMixin, ClassifierMixin, BaseEstimator):
    """Divides the rows it is given into domains of its own."""

    def fit(self, X, y, sample_weight=None):
        self.inner_ = tsa().fit(X[:75], y[:75], X_target=X[75:])
        self.classes_ = self.inner_.classes_
        return self

    def transform(self, X):
        return X

    def predict(self, X):
        return self.inner_.predict(X)


def test_rows_that_a_step_took_from_the_transformed_ones_are_not_refused(data):
    x, y, x_t = data
    last = make_pipeline(StandardScaler(), Adapting()).fit(x, y, adapting__sample_weight=np.ones(len(x)))
    assert (last.predict(x_t) == y).mean() > 0.9
    make_pipeline(StandardScaler(), Adapting(), LogisticRegression()).fit(x, y)


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        (lambda: [StandardScaler(), make_pipeline("passthrough", tsa())], "pipeline__tsaclassifier__X_target"),
        (lambda: [StandardScaler(), make_adaptation_pipeline(PCA(3), tsa())], "adaptationpipeline__X_target"),
        (lambda: [StandardScaler(), tsa(), LogisticRegression()], "tsaclassifier__X_target"),
        (lambda: [StandardScaler(), GridSearchCV(tsa(), {"beta": [0.1]}, cv=2)], "gridsearchcv__X_target"),
    ],
    ids=["nested", "ours nested in a plain one", "in the middle", "search"],
)
def test_wherever_the_classifier_stands(data, steps, name):
    x, y, x_t = data
    with pytest.raises(ValueError, match=r"standardscaler\. .*make_adaptation_pipeline.*transform_input"):
        make_pipeline(*steps()).fit(x, y, **{name: x_t})


def test_fit_transform_refuses_as_well(data):
    x, y, x_t = data
    with pytest.raises(ValueError, match="untransformed"):
        make_pipeline(StandardScaler(), tsa()).fit_transform(x, y, tsaclassifier__X_target=x_t)


def test_routing_alone_does_not_transform(data):
    x, y, x_t = data
    with sklearn.config_context(enable_metadata_routing=True):
        steps = [("scale", StandardScaler()), ("tsa", tsa().set_fit_request(X_target=True))]
        with pytest.raises(ValueError, match="went through scale"):
            Pipeline(steps).fit(x, y, X_target=x_t)
        outer = Pipeline([("none", "passthrough"), ("inner", Pipeline(steps, transform_input=["X_target"]))])
        np.testing.assert_array_equal(outer.fit(x, y, X_target=x_t).predict_proba(x_t), by_hand(*data))
