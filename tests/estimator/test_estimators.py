"""The scikit-learn face: its rules, its domains, its guard, and that it is the same training as the command line's."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.configs import run_config

from tsadapt import DomainAdaptationClassifier, TSAClassifier, ValidatorScorer
from tsadapt.estimator import ConstantFeaturesWarning, NoTargetWarning, SourceOnlyWarning
from tsadapt.presets import PRESETS
from tsadapt.runs.fit import train_run
from tsadapt.runs.folder import RunFolder
from tsadapt.selection.predictions import Predictions, softmax

SMALL = {"steps": 60, "bottleneck": 16, "batch_size": 32, "lr": 0.05, "random_state": 0, "device": "cpu"}


def small(**changes):
    return TSAClassifier(**{**SMALL, **changes})


@pytest.fixture(scope="module")
def task():
    """Three Gaussian classes named by words, and the same moved: X, y, domain; target labels are wrong on purpose."""
    rng = np.random.default_rng(0)
    centres = 2.5 * rng.normal(size=(3, 6))
    y = np.array(["ant", "bee", "cow"])[np.arange(120) % 3]
    x_s = centres[np.arange(120) % 3] + rng.normal(size=(120, 6))
    x_t = centres[np.arange(120) % 3] + rng.normal(size=(120, 6)) + 0.8
    return x_s, y, x_t


def together(task):
    x_s, y, x_t = task
    domain = np.repeat([1, -2], 120)
    return np.concatenate([x_s, x_t]), np.concatenate([y, np.full(120, "masked")]), domain


NOT_TO_THE_DIGIT = {
    "check_sample_weight_equivalence_on_dense_data": "weights change how often rows are drawn, not each batch"
}
CHECKED = [
    TSAClassifier(**SMALL),
    TSAClassifier(**{**SMALL, "bottleneck": None}),
    DomainAdaptationClassifier("cdan+e", **SMALL),
    DomainAdaptationClassifier(preset="strong", **SMALL),
]


@pytest.mark.filterwarnings("ignore::tsadapt.estimator.NoTargetWarning")
@pytest.mark.filterwarnings("ignore:SCIPY_ARRAY_API")
@parametrize_with_checks(CHECKED, expected_failed_checks=lambda estimator: NOT_TO_THE_DIGIT)
def test_scikit_learns_own_checks(estimator, check):
    """Without a target they train a source-only classifier."""
    check(estimator)


def test_both_ways_of_giving_domains_are_the_same(task):
    x_s, y, x_t = task
    apart = small().fit(x_s, y, X_target=x_t)
    x, labels, domain = together(task)
    at_once = small().fit(x, labels, sample_domain=domain)
    assert np.array_equal(apart.predict_proba(x_t), at_once.predict_proba(x_t))
    assert list(at_once.classes_) == ["ant", "bee", "cow"]
    order = np.random.default_rng(1).permutation(240)
    with pytest.raises(ValueError, match="sample_domain and X_target"):
        small().fit(x, labels, sample_domain=domain, X_target=x_t)
    mixed = small().fit(x[order], labels[order], sample_domain=domain[order])
    assert (mixed.predict(x_t) == y).mean() > 0.9


def test_target_labels_are_never_read(task):
    x, labels, domain = together(task)
    expected = small().fit(x, labels, sample_domain=domain).predict_proba(x)
    for masked in (np.array(["bee"] * 120), np.random.default_rng(0).permutation(labels[:120])):
        changed = labels.copy()
        changed[domain < 0] = masked
        assert np.array_equal(small().fit(x, changed, sample_domain=domain).predict_proba(x), expected)
    numbers = np.where(domain > 0, np.repeat([[0, 1, 2]], 80, 0).ravel(), np.nan)  # as skada masks numbers
    assert small().fit(x, numbers, sample_domain=domain).score(x[:120], numbers[:120]) > 0.9


def test_adaptation_helps(task):
    x_s, y, x_t = task
    with pytest.warns(NoTargetWarning, match="No target"):
        alone = small().fit(x_s, y)
    assert small().fit(x_s, y, X_target=x_t).score(x_t, y) >= alone.score(x_t, y)
    assert alone.report_["used"] == "source-only"


def test_the_same_training_as_the_command_line(task, tmp_path, monkeypatch):
    """The engine's own run, with the seed that random_state gives, ends with the same probabilities."""

    monkeypatch.chdir(tmp_path)
    x_s, y, x_t = (part.astype(np.float32) if part.dtype.kind == "f" else part for part in task)
    np.savez("s.npz", x=x_s, y=y)
    np.savez("t.npz", x=x_t)
    seed = int(check_random_state(0).randint(2**31 - 1))
    known = {"steps": 60, "bottleneck": 16, "batch_size": 32, "lr": 0.05, "weight_decay": 1e-3}
    run, _ = train_run(run_config("s.npz", "t.npz", tsa=True, seed=seed, device="cpu", **known), quiet=True)
    theirs = softmax(Predictions.read(RunFolder(run).predictions_file(60)).logits_t)
    assert np.allclose(small().fit(x_s, y, X_target=x_t).predict_proba(x_t), theirs, atol=1e-5)


@pytest.mark.parametrize("method", ["dann", "bsp", "jada"])
def test_any_method(task, method):
    x_s, y, x_t = task
    clf = small(method=method).fit(x_s, y, X_target=x_t)
    assert clf.score(x_t, y) > 0.8
    assert clf.transform(x_t).shape == (120, 16)
    assert len(clf.get_feature_names_out()) == 16


def test_frames_names_pickles_and_clones(task):
    x_s, y, x_t = task
    names = [f"f{i}" for i in range(6)]
    clf = small().fit(pd.DataFrame(x_s, columns=names), y, X_target=pd.DataFrame(x_t, columns=names))
    assert list(clf.feature_names_in_) == names
    again = pickle.loads(pickle.dumps(clf))
    frame = pd.DataFrame(x_t, columns=names)
    assert np.array_equal(again.predict_proba(frame), clf.predict_proba(frame))
    assert clone(clf).get_params() == clf.get_params()
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(frame[names[::-1]])
    with pytest.raises(ValueError, match="feature names"):
        small().fit(pd.DataFrame(x_s, columns=names), y, X_target=frame[names[::-1]])


def test_the_callers_random_numbers_are_left_alone(task):
    x_s, y, x_t = task
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    small().fit(x_s, y, X_target=x_t)
    assert torch.equal(torch.rand(4), expected)


def test_nothing_is_written(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path / "cache"))
    x_s, y, x_t = task
    small(verbose=1).fit(x_s, y, X_target=x_t)
    assert not [*tmp_path.iterdir()]


def test_warm_start_goes_on(task):
    x_s, y, x_t = task
    clf = small(warm_start=True, steps=5).fit(x_s, y, X_target=x_t)
    first = clf.predict_proba(x_t)
    further = clf.fit(x_s, y, X_target=x_t).predict_proba(x_t)
    cold = small(steps=5).fit(x_s, y, X_target=x_t).predict_proba(x_t)
    assert np.array_equal(first, cold)
    assert further.max(1).mean() > first.max(1).mean()
    with pytest.raises(ValueError, match="warm_start"):
        clf.set_params(bottleneck=8).fit(x_s, y, X_target=x_t)


def test_pipelines_searches_and_validators_as_scorers(task):
    x, labels, domain = together(task)
    with config_context(enable_metadata_routing=True):
        clf = small().set_fit_request(sample_domain=True)
        search = GridSearchCV(
            make_pipeline(StandardScaler(), clf),
            {"tsaclassifier__beta": [0.05, 0.1]},
            scoring=ValidatorScorer("im"),
            cv=KFold(2, shuffle=True, random_state=0),
        )
        search.fit(x, labels, sample_domain=domain)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert (search.predict(x[120:]) == labels[:120]).mean() > 0.9
        scores = cross_val_score(
            clf, x, labels, scoring=ValidatorScorer("dev"), cv=KFold(2, shuffle=True, random_state=0),
            params={"sample_domain": domain},
        )  # fmt: skip
        assert np.isfinite(scores).all()
        guess = cross_val_predict(
            clf, x, labels, cv=KFold(2, shuffle=True, random_state=0), params={"sample_domain": domain}
        )
        assert (guess[120:] == labels[:120]).mean() > 0.9
    for name in ("ensv", "consensus", "nonsense"):
        with pytest.raises(ValueError, match="by itself"):
            ValidatorScorer(name)
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        ValidatorScorer("dev")(search.best_estimator_, x, labels)
    with pytest.raises(ValueError, match="needs rows of the source"):
        ValidatorScorer("dev")(search.best_estimator_, x)


def test_the_scorers_read_no_target_label(task):
    x, labels, domain = together(task)
    clf = small().fit(x, labels, sample_domain=domain)
    for name in ("im", "dev", "snd"):
        scorer = ValidatorScorer(name)
        changed = labels.copy()
        changed[domain < 0] = "bee"
        assert scorer(clf, x, labels, sample_domain=domain) == scorer(clf, x, changed, sample_domain=domain)
    assert ValidatorScorer("im")(clf, x[120:]) == ValidatorScorer("im")(clf, x, labels, sample_domain=domain)
    with pytest.raises(ValueError, match="No target rows"):
        ValidatorScorer("im")(clf, x[:120], labels[:120], sample_domain=domain[:120])


def test_a_splitter_by_domain(task):
    """As skada's: whole target rows in the test part, the source in the train part."""
    x, labels, domain = together(task)

    class SourceTarget:
        def split(self, X, y=None, sample_domain=None):
            half = np.flatnonzero(domain < 0)[::2]
            yield np.setdiff1d(np.arange(len(X)), half), half

        def get_n_splits(self, X=None, y=None, sample_domain=None):
            return 1

    with config_context(enable_metadata_routing=True):
        clf = small().set_fit_request(sample_domain=True)
        scores = cross_val_score(
            clf,
            x,
            labels,
            scoring=ValidatorScorer("entropy"),
            cv=SourceTarget().split(x),
            params={"sample_domain": domain},
        )
    assert scores.shape == (1,)


def test_a_preset_is_its_settings_and_parameters_take_precedence(task):
    x_s, y, x_t = task

    def probabilities(**parameters):
        return DomainAdaptationClassifier(**parameters, **SMALL).fit(x_s, y, X_target=x_t).predict_proba(x_t)

    assert dict(PRESETS["strong"].settings) == {"target_terms": ("atdoc",)}
    strong = {"target_terms": ("atdoc",)}
    assert np.array_equal(probabilities(preset="strong"), probabilities(**strong))
    stronger = {"term_settings": {"atdoc_weight": 0.9}}
    assert np.array_equal(probabilities(preset="strong", **stronger), probabilities(**strong, **stronger))
    assert not np.array_equal(probabilities(preset="strong", **stronger), probabilities(preset="strong"))
    assert np.array_equal(probabilities(preset="strong", target_terms=()), probabilities())
    assert np.array_equal(probabilities(preset="paper"), small().fit(x_s, y, X_target=x_t).predict_proba(x_t))
    assert np.array_equal(
        probabilities(preset="paper", beta=0.2), small(beta=0.2).fit(x_s, y, X_target=x_t).predict_proba(x_t)
    )


def test_an_unknown_preset_names_those_there_are(task):
    x_s, y, x_t = task
    with pytest.raises(ValueError, match=r"'stronk'.*strong"):
        DomainAdaptationClassifier(preset="stronk").fit(x_s, y, X_target=x_t)


def test_fallback_keeps_source_only_when_adaptation_collapses(task):
    x_s, y, x_t = task
    prior = {"steps": 60, "fallback": "source"}
    clf = small(**prior).fit(x_s, y, X_target=x_t)
    assert clf.report_["used"] == "adapted"
    assert set(clf.report_["scores"]["im"]) == {"source-only", "adapted"}
    assert "dev" not in clf.report_["scores"]
    # Minus MI pulls all predictions together: a collapse on demand.
    ruined = small(**prior, beta=30.0, term_weight={"mi": -1.0})
    with pytest.warns(SourceOnlyWarning, match="Kept the source-only"):
        ruined.fit(x_s, y, X_target=x_t)
    assert ruined.report_["used"] == "source-only"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoTargetWarning)
        alone = small().fit(x_s, y)
    assert np.allclose(ruined.predict_proba(x_t), alone.predict_proba(x_t))


@pytest.mark.parametrize(
    ("change", "how", "message"),
    [
        ({"method": "dannn"}, {}, "Unknown method 'dannn'"),
        ({"lr": -1.0}, {}, "'lr' parameter of TSAClassifier must be .* Got -1.0"),
        ({"steps": "x"}, {}, "'steps' parameter of TSAClassifier must be .* Got 'x'"),
        ({"fallback": "no"}, {}, "must be a str among {'source'} or None"),
        ({"lr": 1e30}, {}, "is (nan|inf)"),
        ({}, {"sample_domain": np.zeros(120)}, "has a 0"),
        ({}, {"sample_domain": -np.ones(120)}, "no source rows"),
        ({}, {"sample_domain": np.ones(5)}, "inconsistent numbers of samples"),
        ({}, {"X_target": np.ones((4, 5))}, "X_target has 5 features, but X has 6"),
        ({}, {"X_target": np.full((4, 6), np.nan)}, "X_target contains NaN"),
    ],
)
def test_mistakes_are_value_errors(task, change, how, message):
    x_s, y, x_t = task
    with pytest.raises(ValueError, match=message):
        small(**change).fit(x_s, y, **(how or {"X_target": x_t}))
    with pytest.raises(ValueError, match="too large to standardise"):
        small().fit(x_s * 1e300, y, X_target=x_t)


def test_the_reference_of_a_warm_start_is_fresh(task):
    x_s, y, x_t = task
    clf = small(fallback="source", warm_start=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SourceOnlyWarning)
        first = clf.fit(x_s, y, X_target=x_t).report_["scores"]
        again = clf.fit(x_s, y, X_target=x_t).report_["scores"]
    assert all(first[name]["source-only"] == again[name]["source-only"] for name in first)
    assert any(first[name]["adapted"] != again[name]["adapted"] for name in first)


def test_a_held_out_class_that_was_not_trained_is_left_out():
    """Labels between two known classes must not be taken for one of them."""
    rng = np.random.default_rng(0)
    y = np.array(["a", "c"])[np.arange(80) % 2]
    x = 3 * np.eye(2, 4)[np.arange(80) % 2] + rng.normal(size=(80, 4))
    clf = TSAClassifier(steps=20, bottleneck=4, random_state=0).fit(x, y, X_target=x + 0.5)
    rows, labels = np.concatenate([x, x[:20]]), np.concatenate([y, np.full(20, "b")])
    domain = np.concatenate([np.repeat([-2, 1], 40), np.ones(20)])
    scorer = ValidatorScorer("source-accuracy")
    assert scorer(clf, rows, labels, sample_domain=domain) == scorer(clf, x, y, sample_domain=domain[:80])


def test_constant_features_are_warned_of_once(task):
    x_s, y, x_t = task
    x_s = np.hstack([np.ones((120, 1)), x_s[:, 1:]])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        small(steps=2, fallback="source").fit(x_s, y, X_target=x_t)
    ours = [str(one.message) for one in caught if one.category is ConstantFeaturesWarning]
    assert len(ours) == 1
    assert "the source has 1 of 6." in ours[0]


def test_a_few_target_labels_are_trained_on():
    """Labels that contradict the source are followed; −1 is no label, None is none where −1 is a class."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = 4 * np.eye(3)[y] + rng.normal(size=(90, 3))
    names = np.array(["ant", "bee", "cow"])
    X_target, turned = X + 0.3, (y + 1) % 3
    few = np.where(np.arange(90) < 30, names[turned].astype(object), -1)
    settings = {"steps": 150, "bottleneck": 8, "random_state": 0}
    plain = DomainAdaptationClassifier(**settings).fit(X, names[y], X_target=X_target)
    none = DomainAdaptationClassifier(**settings).fit(X, names[y], X_target=X_target, y_target=None)
    np.testing.assert_array_equal(plain.decision_function(X), none.decision_function(X))
    few_fit = DomainAdaptationClassifier(term_weight={"target-labels": 5.0}, **settings).fit(
        X, names[y], X_target=X_target, y_target=few
    )
    assert plain.score(X_target, names[y]) > 0.9
    assert few_fit.score(X_target, names[y]) < 0.5
    assert few_fit.report_["target_labels_trained_on"] == 30
    signs = np.where(y == 0, -1, 1)
    signed = DomainAdaptationClassifier(**settings).fit(X, signs, X_target=X_target, y_target=[-1, None] * 45)
    assert signed.report_["target_labels_trained_on"] == 45
    with pytest.raises(ValueError, match="pass both"):
        DomainAdaptationClassifier(**settings).fit(X, y, y_target=y)
    with pytest.raises(ValueError, match="expected one label for each of 90"):
        DomainAdaptationClassifier(**settings).fit(X, y, X_target=X_target, y_target=y[:5])
    with pytest.raises(ValueError, match="Unknown class '7'"):
        DomainAdaptationClassifier(**settings).fit(X, y, X_target=X_target, y_target=np.full(90, 7))
