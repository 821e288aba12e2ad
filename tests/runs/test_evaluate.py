import numpy as np
import pytest

from tsadapt.data.arrays import from_arrays
from tsadapt.runs import evaluate
from tsadapt.runs.evaluate import Predicted, calibration_error, score
from tsadapt.selection import logits as parts
from tsadapt.selection.density import proxy_a_distance
from tsadapt.selection.logits import FactoredLogits


def test_scores_by_hand():
    logits = np.array([[2.0, 0], [2, 0], [0, 2], [2, 0]], dtype=np.float32)
    domain = from_arrays("d", np.zeros((4, 1)), ["a", "a", "b", "b"])
    said = score(Predicted(np.zeros((4, 1)), logits, [0, 1, 2, 3], {}), domain, ("a", "b"))
    assert said["accuracy"] == 0.75
    assert said["per_class_accuracy"] == {"a": 1.0, "b": 0.5}
    assert said["mean_class_accuracy"] == 0.75
    assert said["confusion"] == [[2, 0], [1, 1]]
    assert said["predicted_share"] == {"a": 0.75, "b": 0.25}
    confidence = 1 / (1 + np.exp(-2))
    assert said["calibration_error"] == pytest.approx(abs(confidence - 0.75))


def test_many_classes_are_scored_in_blocks_and_only_pairs_that_occur_are_counted(monkeypatch):
    rng = np.random.default_rng(0)
    f, w, b = (rng.normal(size=shape).astype(np.float32) for shape in ((40, 3), (6, 3), (6,)))
    domain, rows = from_arrays("d", np.zeros((40, 1)), rng.integers(0, 7, 40)), [*range(40)]  # one class is unknown
    classes = tuple("012345")
    whole = score(Predicted(f, f @ w.T + b, rows, {}), domain, classes)
    monkeypatch.setattr(evaluate, "MOST_CLASSES", 5)
    monkeypatch.setattr(parts, "BLOCK_CELLS", 50)
    some = score(Predicted(f, FactoredLogits(f, w, b), rows, {}), domain, classes)
    table = np.zeros((6, 6), dtype=int)
    for true, predicted, count in some["confusion"]:
        assert count > 0
        table[true, predicted] = count
    assert table.tolist() == whole.pop("confusion")
    del some["confusion"]
    assert some.pop("calibration_error") == pytest.approx(whole.pop("calibration_error"))
    assert some == whole


def test_calibration_limits():
    sure = np.eye(2)[[0, 1, 0]]
    assert calibration_error(sure, np.array([0, 1, 0])) == 0
    assert calibration_error(sure, np.array([1, 0, 1])) == 1


def test_a_distance():
    rng = np.random.default_rng(0)
    same = proxy_a_distance(rng.normal(size=(3000, 4)), rng.normal(size=(3000, 4)))
    apart = proxy_a_distance(rng.normal(size=(300, 4)), rng.normal(size=(900, 4)) + 20)
    assert abs(same) < 0.25
    assert apart == 2
    assert np.isnan(proxy_a_distance(np.zeros((2, 1)), np.zeros((2, 1))))
