"""What speaks for the prediction of a row."""

import numpy as np
import pytest

from tsadapt.trust import doubtful_rows, neighbour_support, probability_right, rows, second_classes, support


def test_support_is_the_mean_of_what_there_is():
    own, others, near = np.array([0.9, 0.3]), [np.array([0.5, 0.1]), np.array([0.7, 0.5])], [np.array([0.0, 1.0])]
    assert support(own, others, near) == pytest.approx([(0.9 + 0.6 + 0.0) / 3, (0.3 + 0.3 + 1.0) / 3])
    assert support(own, [], []) == pytest.approx(own)


@pytest.mark.parametrize("chunk", [7, 1000])
def test_neighbours_by_loops(monkeypatch, chunk):
    monkeypatch.setattr(rows, "CHUNK", chunk)
    rng = np.random.default_rng(0)
    f, guess = rng.normal(size=(30, 4)), rng.integers(0, 3, 30)
    found = neighbour_support(f, guess, k=4)
    for i in range(30):
        cosine = [f[i] @ f[j] / np.linalg.norm(f[i]) / np.linalg.norm(f[j]) if j != i else -9 for j in range(30)]
        nearest = sorted(range(30), key=lambda j: -cosine[j])[:4]
        assert found[i] == pytest.approx(np.mean([guess[j] == guess[i] for j in nearest]))


def test_neighbours_of_few_rows_and_of_many(monkeypatch):
    assert neighbour_support(np.ones((1, 2)), np.array([0])).tolist() == [1]
    assert neighbour_support(np.zeros((2, 2)), np.array([0, 1])).tolist() == [0, 0]
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    f = 5 * np.eye(3)[y] + rng.normal(size=(300, 3))
    whole = neighbour_support(f, y)
    monkeypatch.setattr(rows, "MOST_ROWS", 100)
    assert neighbour_support(f, y).mean() == pytest.approx(whole.mean(), abs=0.1)


def test_more_support_is_more_probable_and_chance_is_the_least():
    s = np.linspace(0, 1, 50)
    p = probability_right(s, 4)
    assert (np.diff(p) >= 0).all()
    assert p[0] == 0.25
    assert p[-1] > 0.99
    odds = np.log(0.7 / 0.3)
    assert probability_right(np.array([0.7]), 100)[0] == pytest.approx(
        1 / (1 + np.exp(-rows.SLOPE * odds - rows.OFFSET))
    )


def test_doubtful_is_below_the_threshold():
    p = np.array([0.2, 0.5, 0.8])
    assert doubtful_rows(p).tolist() == [True, False, False]
    assert doubtful_rows(p, 0.9).all()


def test_second_classes():
    p = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])
    assert second_classes(p, np.array([1, 2])).tolist() == [2, 0]  # the guess need not be the most probable
    assert second_classes(np.ones((2, 1)), np.array([0, 0])).tolist() == [0, 0]
