"""Searches without target labels: with and without metadata routing, and by the consensus over a pool."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tsadapt import ConsensusSearchCV, TSAClassifier, ValidatorScorer, make_adaptation_pipeline
from tsadapt.selection.select import choose

SMALL = {"steps": 40, "bottleneck": 8, "batch_size": 32, "lr": 0.05, "random_state": 0, "device": "cpu"}
GRID = {"beta": [0.05, 0.1]}
# Minus mutual information pulls all predictions together.
COLLAPSE = {"beta": 30.0, "term_weight": {"mi": -1.0}}


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(0)
    centres = 2.5 * rng.normal(size=(3, 6))
    y = np.array(["ant", "bee", "cow"])[np.arange(90) % 3]
    x_s = centres[np.arange(90) % 3] + rng.normal(size=(90, 6))
    return x_s, y, centres[np.arange(60) % 3] + rng.normal(size=(60, 6)) + 0.8


def together(task):
    x_s, y, x_t = task
    return np.concatenate([x_s, x_t]), np.concatenate([y, np.full(60, "?")]), np.repeat([1, -1], [90, 60])


@pytest.mark.parametrize("name", ["im", "dev"])
def test_a_search_with_a_target_needs_no_routing(task, name):
    x_s, y, x_t = task
    search = GridSearchCV(TSAClassifier(**SMALL), GRID, scoring=ValidatorScorer(name), cv=2)
    search.fit(x_s, y, X_target=x_t)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    # By hand: trained on one fold, scored on the target and on the other fold.
    first, second = next(StratifiedKFold(2).split(x_s, y))
    clf = TSAClassifier(**SMALL, beta=0.1).fit(x_s[first], y[first], X_target=x_t)
    found = search.cv_results_["split0_test_score"][1]
    assert found == ValidatorScorer(name)(clf, x_s[second], y[second])
    rows, labels = np.concatenate([x_s[second], x_t]), np.concatenate([y[second], np.full(60, "?")])
    by_hand = ValidatorScorer(name)(clf, rows, labels, sample_domain=np.repeat([1, -1], [len(second), 60]))
    assert found == pytest.approx(by_hand, rel=1e-5 if name == "im" else 0.2)  # DEV depends on the order of rows


def test_domains_without_routing_are_scored_on_the_target_of_training(task):
    x, labels, domain = together(task)
    folds = KFold(2, shuffle=True, random_state=0)
    search = GridSearchCV(TSAClassifier(**SMALL), GRID, scoring=ValidatorScorer("im"), cv=folds)
    search.fit(x, labels, sample_domain=domain)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [("dev", "domain", "Turn on sklearn.set_config"), ("im", "nothing", "A validator scores target rows")],
)
def test_what_cannot_be_scored_ends_the_search_with_an_error(task, name, given, said):
    x, labels, domain = together(task)
    how = {"sample_domain": domain} if given == "domain" else {}
    for scoring, cv in ((ValidatorScorer(name), 2), ({"one": ValidatorScorer(name)}, 2)):
        search = GridSearchCV(TSAClassifier(**SMALL), GRID, scoring=scoring, refit=False, cv=cv)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(ValueError, match=said):
                search.fit(x, labels, **how)


def test_the_consensus_of_a_search_is_that_of_its_pool(task):
    x_s, y, x_t = task
    grid = [GRID, {name: [value] for name, value in COLLAPSE.items()}]
    search = ConsensusSearchCV(TSAClassifier(**SMALL), grid, cv=StratifiedKFold(2)).fit(x_s, y, X_target=x_t)
    found = search.cv_results_
    assert len(found["params"]) == 3
    assert found["excluded"][0] == ""
    assert "classes in effect" in found["excluded"][2]
    assert np.isnan(found["mean_test_score"][2])
    assert found["rank_test_score"][2] == 3
    assert search.best_index_ in (0, 1)
    assert search.best_params_ == found["params"][search.best_index_]
    assert search.best_estimator_.get_params()["beta"] == search.best_params_["beta"]
    assert search.predict(x_t).shape == (60,)
    assert search.predict_proba(x_t).shape == (60, 3)
    assert search.score(x_s, y) > 0.8
    assert list(search.classes_) == ["ant", "bee", "cow"]
    assert {"validator_dev", "validator_ensv", "validator_mixval", "param_beta"} <= {*found}


def test_scores_are_minus_the_mean_rank_that_choose_gives(task):
    x_s, y, x_t = task
    from tsadapt.estimator.fitting import predictions_of

    first, second = next(StratifiedKFold(2).split(x_s, y))
    pool = [
        predictions_of(one.fit(x_s[first], y[first], X_target=x_t), x_s[second], y[second], x_t)
        for one in (TSAClassifier(**SMALL, beta=beta) for beta in GRID["beta"])
    ]
    choice = choose(pool)
    search = ConsensusSearchCV(TSAClassifier(**SMALL), GRID, cv=[(first, second)], refit=False)
    search.fit(x_s, y, X_target=x_t)
    assert search.cv_results_["mean_test_score"].tolist() == (-choice.scores["consensus"]).tolist()
    assert search.best_index_ == choice.chosen
    with pytest.raises(AttributeError):
        search.predict(x_t)


def test_frames_pipelines_domains_and_draws(task):
    x, labels, domain = together(task)
    frame = pd.DataFrame(x, columns=[f"f{i}" for i in range(6)], index=np.arange(500, 650))
    model = make_adaptation_pipeline(StandardScaler(), TSAClassifier(**SMALL))
    grid = {"tsaclassifier__beta": [0.05, 0.1, 0.2]}
    search = ConsensusSearchCV(model, grid, n_iter=2, n_jobs=2)
    search.fit(frame, pd.Series(labels, index=frame.index), sample_domain=pd.Series(domain, index=frame.index))
    assert len(search.cv_results_["params"]) == 2
    assert search.best_estimator_.predict(frame[:3]).shape == (3,)
    apart = ConsensusSearchCV(model, grid, n_iter=2).fit(frame[:90], labels[:90], X_target=frame[90:])
    assert apart.cv_results_["mean_test_score"].tolist() == search.cv_results_["mean_test_score"].tolist()


def test_mistakes_of_a_consensus_search(task):
    x_s, y, x_t = task
    clf = TSAClassifier(**SMALL)
    with pytest.raises(ValueError, match="none of them given"):
        ConsensusSearchCV(clf, GRID).fit(x_s, y)
    with pytest.raises(ValueError, match="both positive numbers"):
        ConsensusSearchCV(clf, GRID).fit(x_s, y, sample_domain=np.ones(90))
    with pytest.raises(ValueError, match="Unknown validator 'consensis'"):
        ConsensusSearchCV(clf, GRID, by="consensis").fit(x_s, y, X_target=x_t)
    with pytest.raises(ValueError, match="make_adaptation_pipeline"):
        ConsensusSearchCV(make_pipeline(StandardScaler(), clf), GRID).fit(x_s, y, X_target=x_t)
    with pytest.raises(ValueError, match=r"All 2 candidates failed. The first: .*Unknown method 'no'"):
        ConsensusSearchCV(clf, {"method": ["no", "nope"]}).fit(x_s, y, X_target=x_t)
    with pytest.warns(FitFailedWarning, match="Unknown method 'no'"):
        search = ConsensusSearchCV(clf, {"method": ["no", "source-only"]}).fit(x_s, y, X_target=x_t)
    assert search.best_params_ == {"method": "source-only"}


def test_mistakes_are_said_once_and_name_what_is_expected(task):
    x_s, y, x_t = task
    with pytest.raises(ValueError, match="estimator is a LogisticRegression, expected a TSAClassifier"):
        ConsensusSearchCV(LogisticRegression(), {"C": [1, 2]}).fit(x_s, y, X_target=x_t)
    frame = pd.DataFrame(x_s).assign(id=[f"r{i}" for i in range(90)])
    with pytest.raises(ValueError, match="columns of text: id") as error:
        ConsensusSearchCV(TSAClassifier(**SMALL), GRID).fit(frame, y, X_target=x_t)
    assert str(error.value).count("set_index") == 1
    assert repr(ValidatorScorer("im")) == "ValidatorScorer('im')"


def test_the_search_is_a_classifier_and_may_end_a_pipeline(task):
    x_s, y, x_t = task
    search = ConsensusSearchCV(TSAClassifier(**SMALL), GRID)
    assert is_classifier(search)
    model = make_adaptation_pipeline(StandardScaler(), search).fit(x_s, y, X_target=x_t)
    scaler = StandardScaler().fit(x_s)
    by_hand = ConsensusSearchCV(TSAClassifier(**SMALL), GRID).fit(
        scaler.transform(x_s), y, X_target=scaler.transform(x_t)
    )
    assert model[-1].best_params_ == by_hand.best_params_
    assert np.array_equal(model.predict_proba(x_t), by_hand.predict_proba(scaler.transform(x_t)))


def test_the_only_row_of_a_class_is_trained_on(task):
    x_s, y, x_t = task
    labels = np.where(np.arange(90) == 4, "yak", y)
    search = ConsensusSearchCV(TSAClassifier(**SMALL), GRID, refit=False)
    ((train, held),) = search._splits(x_s, labels)
    assert 4 in train
    assert sorted([*train, *held]) == [*range(90)]
    assert len(held) == 9
    assert {*labels[held]} == {"ant", "bee", "cow"}
    assert "beta" in search.fit(x_s, labels, X_target=x_t).best_params_
    with pytest.raises(ValueError, match="no class has two of them"):
        search.fit(x_s[:3], np.array(["a", "b", "c"]), X_target=x_t)


def test_a_search_trains_with_weights(task):
    x_s, y, x_t = task
    weight = (y != "cow").astype(float)
    search = ConsensusSearchCV(TSAClassifier(**SMALL), GRID).fit(x_s, y, X_target=x_t, sample_weight=weight)
    assert list(search.classes_) == ["ant", "bee"]
    best = TSAClassifier(**SMALL, **search.best_params_).fit(x_s, y, X_target=x_t, sample_weight=weight)
    assert np.array_equal(search.predict_proba(x_t), best.predict_proba(x_t))
    x, labels, domain = together(task)
    whole = np.concatenate([weight, np.full(60, 9.0)])
    at_once = ConsensusSearchCV(TSAClassifier(**SMALL), GRID).fit(x, labels, domain, sample_weight=whole)
    assert at_once.cv_results_["mean_test_score"].tolist() == search.cv_results_["mean_test_score"].tolist()
    # Candidates are trained with the weights as well: of what is never trained nothing is held against them.
    plain = ConsensusSearchCV(TSAClassifier(**SMALL), GRID).fit(x_s, y, X_target=x_t)
    assert search.cv_results_["validator_im"].tolist() != plain.cv_results_["validator_im"].tolist()


def test_routing_still_hands_on_domains(task):
    x, labels, domain = together(task)
    with config_context(enable_metadata_routing=True):
        clf = TSAClassifier(**SMALL).set_fit_request(sample_domain=True)
        folds = KFold(2, shuffle=True, random_state=0)
        search = GridSearchCV(clf, GRID, scoring={"dev": ValidatorScorer("dev")}, refit="dev", cv=folds)
        search.fit(x, labels, sample_domain=domain)
    assert np.isfinite(search.cv_results_["mean_test_dev"]).all()
