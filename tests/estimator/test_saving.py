"""Estimators saved without pickle: the same predictions, the same parameters, and nothing that runs."""

import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_tensors
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from tsadapt.estimator import DomainAdaptationClassifier, TSAClassifier
from tsadapt.estimator.saving import _checksum

Y = np.arange(60) % 3
X = 4 * np.eye(3, 4)[Y] + np.random.default_rng(0).normal(size=(60, 4))
SHORT = {"steps": 15, "bottleneck": 8, "batch_size": 16, "device": "cpu"}


def saved(clf, path="clf.safetensors"):
    clf.save(path)
    return type(clf).load(path)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "labels",
    [Y, Y - 5.0, np.array(["ant", "bee", "größe\n"])[Y], np.array(["a", "b", "c"], dtype=object)[Y], Y == 1],
    ids=["whole numbers", "fractions", "text", "objects", "booleans"],
)
def test_predictions_and_parameters_come_back_to_the_bit(labels):
    clf = TSAClassifier(random_state=3, term_settings={"min_count": 2}, lambda0=np.float64(0.5), **SHORT)
    clf.fit(X, labels, X_target=X + 0.5)
    again = saved(clf)
    assert type(again) is TSAClassifier
    assert again.get_params() == clf.get_params()
    assert again.classes_.dtype == clf.classes_.dtype
    for ask in ("predict", "predict_proba", "decision_function", "transform"):
        assert (getattr(again, ask)(X) == getattr(clf, ask)(X)).all(), ask
    assert again.report_ == clf.report_
    assert (again.source_features_ == clf.source_features_).all()
    assert (again.n_iter_, again.n_features_in_) == (clf.n_iter_, clf.n_features_in_)
    assert [*again.get_feature_names_out()] == [*clf.get_feature_names_out()]
    assert vars(again).keys() == vars(clf).keys()


def test_what_was_loaded_can_be_cloned_fitted_and_saved_again():
    clf = DomainAdaptationClassifier("dann", random_state=np.random.RandomState(4), **SHORT)
    clf.fit(X, Y, X_target=X + 0.5)
    again = saved(clf)
    first = Path("clf.safetensors").read_bytes()
    assert not hasattr(clone(again), "model_")
    again.save("again.safetensors")
    assert Path("again.safetensors").read_bytes() == first
    # The generator goes on where it was.
    a, b = (one.fit(X, Y, X_target=X + 0.5).predict_proba(X) for one in (clf, again))
    assert (a == b).all()


def test_column_names_come_back_and_are_checked():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[*"abcd"])
    clf = TSAClassifier(random_state=0, **SHORT).fit(frame, Y, X_target=frame)
    again = saved(clf)
    assert (again.predict(frame) == clf.predict(frame)).all()
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[[*"dcba"]])


def test_adapting_to_a_new_target_works_after_loading():
    clf = TSAClassifier(random_state=0, **SHORT).fit(X, Y, X_target=X)
    assert (saved(clf).adapt_bn(X + 3).predict_proba(X) == clf.adapt_bn(X + 3).predict_proba(X)).all()


def test_an_estimator_that_is_not_fitted_or_holds_odd_things_is_refused():
    with pytest.raises(NotFittedError):
        TSAClassifier().save("clf.safetensors")
    clf = TSAClassifier(random_state=0, **SHORT).fit(X, Y, X_target=X).set_params(class_prior={"a": object()})
    with pytest.raises(ValueError, match="cannot be saved: object"):
        clf.save("clf.safetensors")
    assert not Path("clf.safetensors").exists()


def test_each_class_loads_its_own():
    class Mine(TSAClassifier):
        pass

    plain = DomainAdaptationClassifier(preset="strong", random_state=0, **SHORT).fit(X, Y, X_target=X)
    plain.save("plain")
    assert DomainAdaptationClassifier.load("plain").get_params() == plain.get_params()
    with pytest.raises(ValueError, match="holds a DomainAdaptationClassifier, expected TSAClassifier"):
        TSAClassifier.load("plain")
    TSAClassifier(random_state=0, **SHORT).fit(X, Y, X_target=X).save("tsa")
    assert type(DomainAdaptationClassifier.load("tsa")) is TSAClassifier
    params = {name: getattr(TSAClassifier.load("tsa"), name) for name in SHORT}
    Mine(**params).fit(X, Y, X_target=X).save("mine")
    assert type(Mine.load("mine")) is Mine


class Code:
    def __reduce__(self):
        return (Path.touch, (Path("executed"),))


def test_no_pickle_is_read_and_damage_is_one_line():
    clf = TSAClassifier(random_state=0, **SHORT).fit(X, Y, X_target=X)
    clf.save("good")
    good = Path("good").read_bytes()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("data.pkl", pickle.dumps(Code()))
    with safe_open("good", "np") as file:
        about = json.loads(file.metadata()["tsadapt"])
    tensors = load_file("good")
    wrong = []
    for key, value in (
        ("format", 9), ("classes", {}), ("classes", {"values": ["a"], "dtype": "<U1"}), ("parameters", {"nonsense": 1}),
        ("architecture", {}), ("architecture", None), ("estimator", "os.system"),
    ):  # fmt: skip
        changed = {**about, key: value}
        seal = _checksum({k: v for k, v in changed.items() if k != "sha256"}, load_tensors("good"))
        save_file(tensors, "wrong", {"tsadapt": json.dumps({**changed, "sha256": seal})})
        wrong.append(Path("wrong").read_bytes())
    save_file(tensors, "wrong")
    wrong += [Path("wrong").read_bytes(), pickle.dumps(Code()), archive.getvalue(), b"", good[:100], good[:-1]]
    wrong.append(good[:-50] + bytes([good[-50] ^ 1]) + good[-49:])
    for data in wrong:
        Path("bad").write_bytes(data)
        with pytest.raises(ValueError, match=r"^bad cannot be loaded as an estimator: .*\.$"):
            TSAClassifier.load("bad")
    assert not Path("executed").exists()
    with pytest.raises(ValueError, match="No estimator at nowhere"):
        TSAClassifier.load("nowhere")
