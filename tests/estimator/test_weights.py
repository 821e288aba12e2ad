"""sample_weight says how often training sees a row; pandas goes through scikit-learn's calibration."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from tsadapt import ConsensusSearchCV, TSAClassifier, make_adaptation_pipeline
from tsadapt.data.loader import RowStream

SMALL = {"steps": 60, "bottleneck": 8, "batch_size": 32, "lr": 0.05, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(0)
    centres = 2.5 * rng.normal(size=(3, 4))
    y = np.array(["ant", "bee", "cow"])[np.arange(90) % 3]
    x_s = centres[np.arange(90) % 3] + rng.normal(size=(90, 4))
    return x_s, y, x_s[:60] + 0.5


def test_rows_come_as_often_as_their_weights_say():
    stream = RowStream(6, 6, seed=0, salt=0, weights=torch.tensor([3.0, 1.0, 0.5, 0.5, 0.9, 0.1]))
    counts = np.stack([np.bincount(stream.rows_at(step), minlength=6) for step in range(1, 201)])
    assert (counts[:, :2] == [3, 1]).all()  # whole shares: in each epoch
    assert np.allclose(counts.mean(0), [3, 1, 0.5, 0.5, 0.9, 0.1], atol=0.1)
    assert counts[:, 2:].max() == 1
    assert torch.equal(stream.rows_at(3), RowStream(6, 6, 0, 0, torch.tensor([6.0, 2, 1, 1, 1.8, 0.2])).rows_at(3))


@pytest.mark.parametrize("weight", [1.0, 7.0])
def test_equal_weights_change_nothing(task, weight):
    x_s, y, x_t = task
    plain = TSAClassifier(**SMALL).fit(x_s, y, X_target=x_t)
    weighted = TSAClassifier(**SMALL).fit(x_s, y, X_target=x_t, sample_weight=np.full(90, weight))
    assert np.array_equal(plain.predict_proba(x_t), weighted.predict_proba(x_t))


def test_weights_move_the_classifier_and_no_weight_leaves_a_row_out(task):
    x_s, y, x_t = task
    ambiguous = np.concatenate([x_s, x_s]), np.concatenate([y, np.roll(y, 1)])  # every row under two labels
    for first, truth in ((1.0, y), (0.0, np.roll(y, 1))):
        weight = np.repeat([20 * first + 1, 21 - 20 * first], 90)
        clf = TSAClassifier(**SMALL).fit(*ambiguous, X_target=x_t, sample_weight=weight)
        assert clf.score(x_s, truth) > 0.8
    zero = np.repeat([1, 0], 90)
    left = TSAClassifier(**SMALL).fit(*ambiguous, X_target=x_t, sample_weight=zero)
    assert np.array_equal(left.predict_proba(x_t), TSAClassifier(**SMALL).fit(x_s, y, X_target=x_t).predict_proba(x_t))
    two = TSAClassifier(**SMALL).fit(x_s, y, X_target=x_t, sample_weight=(y != "cow").astype(float))
    assert list(two.classes_) == ["ant", "bee"]


def test_weights_beside_a_sample_domain_count_for_the_source_alone(task):
    x_s, y, x_t = task
    x, labels, domain = np.concatenate([x_s, x_t]), np.concatenate([y, np.full(60, "?")]), np.repeat([1, -1], [90, 60])
    weight = np.random.default_rng(0).uniform(0.5, 2, 90)
    apart = TSAClassifier(**SMALL).fit(x_s, y, X_target=x_t, sample_weight=weight)
    for other in (0.0, 100.0):
        whole = np.concatenate([weight, np.full(60, other)])
        at_once = TSAClassifier(**SMALL).fit(x, labels, sample_domain=domain, sample_weight=whole)
        assert np.array_equal(at_once.predict_proba(x_t), apart.predict_proba(x_t))


def test_wrong_weights(task):
    x_s, y, x_t = task
    for weight, said in (
        (-np.ones(90), "Negative"),
        (np.ones(5), r"sample_weight.shape"),
        (np.zeros(90), "non-zero"),
    ):
        with pytest.raises(ValueError, match=said):
            TSAClassifier(**SMALL).fit(x_s, y, X_target=x_t, sample_weight=weight)
    domain = np.repeat([1, -1], 45)
    with pytest.raises(ValueError, match="zero for all rows of the source"):
        TSAClassifier(**SMALL).fit(x_s, y, sample_domain=domain, sample_weight=(domain < 0).astype(float))


def test_ids_and_labels_that_were_left_in_a_frame_are_named(task):
    x_s, y, x_t = task
    frame = pd.DataFrame(x_s, columns=list("abcd")).assign(id=[f"s{i}" for i in range(90)], label=y)
    new = pd.DataFrame(x_t, columns=list("abcd"))
    with pytest.raises(ValueError, match=r"X has columns of text: id, label .* \(set_index\), and give labels as y"):
        TSAClassifier(**SMALL).fit(frame, y, X_target=new)
    with pytest.raises(ValueError, match="X_target has columns of text: kind"):
        TSAClassifier(**SMALL).fit(frame[[*"abcd"]], y, X_target=new.assign(kind="x"))
    numbers = pd.DataFrame(x_s.astype(object))  # columns called 0, 1, 2, 3, of objects that are numbers
    assert TSAClassifier(**SMALL).fit(numbers, y, X_target=x_t).n_features_in_ == 4
    model = make_adaptation_pipeline(StandardScaler(), TSAClassifier(**SMALL))
    with pytest.raises(ValueError, match=r"All 1 candidates failed.* X has columns of text: id, label\. Put ids into"):
        ConsensusSearchCV(model, {"tsaclassifier__beta": [0.1]}).fit(frame, y, X_target=new)


def test_frames_of_both_domains_keep_their_columns_names(task):
    x_s, y, x_t = task
    frame = pd.DataFrame(np.concatenate([x_s, x_t]), columns=list("abcd"))
    labels, domain = np.concatenate([y, np.full(60, "?")]), np.repeat([1, -1], [90, 60])
    clf = TSAClassifier(**SMALL).fit(frame, labels, sample_domain=domain)  # a warning would be an error
    assert list(clf.feature_names_in_) == list("abcd")


@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "temperature"])
def test_frames_go_through_calibration(task, method):
    x_s, y, x_t = task
    index = np.arange(500, 590)
    frame, labels = pd.DataFrame(x_s, columns=list("abcd"), index=index), pd.Series(y, index=index)
    new = pd.DataFrame(x_t, columns=list("abcd"))
    clf = TSAClassifier(**SMALL).fit(frame, labels, X_target=new)
    pipe = make_adaptation_pipeline(StandardScaler(), TSAClassifier(**SMALL)).fit(frame, labels, X_target=new)
    # With this method scikit-learn itself asks a Series for its row 0: a Series without one is turned into an array.
    given = labels.to_numpy() if method == "temperature" else labels
    for model in (clf, pipe):
        calibrated = CalibratedClassifierCV(FrozenEstimator(model), method=method).fit(frame, given)
        p = calibrated.predict_proba(new)
        assert np.allclose(p.sum(1), 1)
        assert list(calibrated.classes_) == ["ant", "bee", "cow"]
    if method == "temperature":
        theirs = FrozenEstimator(LogisticRegression().fit(frame, labels))
        with pytest.raises(KeyError):
            CalibratedClassifierCV(theirs, method=method).fit(frame, labels)
    if method == "sigmoid":
        folds = CalibratedClassifierCV(TSAClassifier(**SMALL), method=method, cv=2).fit(frame, labels, X_target=new)
        assert folds.predict(new).shape == (60,)
