"""Whether class shares explain a target: draws from the source, rows that were moved, and a search by hand."""

import numpy as np
import pytest

from tsadapt.trust.evidence import (
    Evidence,
    class_support,
    consistent_shares,
    evidence,
    explained_part,
    linear_head,
    prototype_shares,
)

CLASSES = 4


def source(seed=0, n=400, noise=1.0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % CLASSES
    return 5 * np.eye(CLASSES)[y] + noise * rng.normal(size=(n, CLASSES)), y


def head(f):
    return 2 * f - 1


def drawn(shares, seed=1, n=600):
    """Target rows that look as the source's do, with these class shares."""
    rng = np.random.default_rng(seed)
    y = rng.choice(CLASSES, n, p=shares)
    return 5 * np.eye(CLASSES)[y] + rng.normal(size=(n, CLASSES)), y


@pytest.mark.parametrize("shares", [[0.82, 0.06, 0.06, 0.06], [0.1, 0.2, 0.7, 0.0]])
def test_shares_explain_rows_drawn_by_them(shares):
    f, y = source()
    assert explained_part(f, y, drawn(shares)[0], head, np.array(shares)) == 1.0


@pytest.mark.parametrize("axis", range(CLASSES))
def test_a_class_that_takes_moved_rows_explains_nothing(axis):
    """Even classes, moved until half of all rows are predicted as one: EM would find that it dominates."""
    f, y = source()
    target = source(seed=2)[0] + 4.5 * np.eye(CLASSES)[axis]
    guess = np.bincount(head(target).argmax(1), minlength=CLASSES) / len(target)
    assert guess[axis] > 0.4
    assert explained_part(f, y, target, head, guess) == 0.0


def test_order_and_scale_of_rows_do_not_matter():
    f, y = source()
    shares = np.array([0.5, 0.3, 0.1, 0.1])
    target = drawn([0.4, 0.3, 0.2, 0.1])[0]
    found = explained_part(f, y, target, head, shares)
    order, other = np.random.default_rng(3).permutation(len(f)), np.random.default_rng(4).permutation(len(target))
    assert explained_part(f[order], y[order], target[other], head, shares) == found
    assert explained_part(10 * f, y, 10 * target, lambda x: head(x / 10), shares) == found


def test_edges():
    f, y = source()
    even = np.full(CLASSES, 1 / CLASSES)
    assert explained_part(f[:0], y[:0], f, head, even) == 0.0
    assert explained_part(f, y, f[:0], head, even) == 0.0
    assert 0 <= explained_part(f, y, f[:1], head, even) <= 1
    assert 0 <= explained_part(np.ones_like(f), y, f, head, even) <= 1  # features that say nothing
    only = np.where(y == 3, 0, y)  # a class that the source lacks
    assert 0 <= explained_part(f, only, f, head, np.array([0.0, 0.0, 0.0, 1.0])) <= 1


def test_combined_shares_lie_between():
    even, sure, there = np.array([0.5, 0.5]), np.array([1.0, 0.0]), np.ones(2, dtype=bool)
    assert Evidence(there, 0.0, sure).combined(even).tolist() == even.tolist()
    assert Evidence(there, 1.0, sure).combined(even).tolist() == sure.tolist()
    assert Evidence(there, 0.3, sure).combined(even) == pytest.approx([0.65, 0.35])


def wide(n, noise=1.0, seed=0):
    """Rows whose classes are told by the first four features; thirty more say nothing."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % CLASSES
    return np.hstack([5 * np.eye(CLASSES)[y] + noise * rng.normal(size=(n, CLASSES)), 2 * rng.normal(size=(n, 30))]), y


def first_four(f):
    return 2 * f[:, :CLASSES] - 1


def shifted(f):
    """The same rows closer together and moved, so that many are predicted as the first class."""
    return 0.7 * f + np.array([3.0, *[0.0] * 33])


def test_support_by_hand():
    """Two places of two rows each: their neighbours are each other, and the best supported quarter is one place."""
    f_s, y = np.array([[2.0, 0.0], [0.0, 2.0]]).repeat(2, axis=0), np.array([0, 0, 1, 1])
    f_t = np.array([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 2.0]])  # as the source: mean and spread stay

    def head(x):
        return np.log(np.where(x[:, :1] > 1, np.array([[0.9, 0.1]]), np.array([[0.4, 0.6]])))

    assert class_support(f_s, y, f_t, head, 2) == pytest.approx([0.9, 0.6])


def test_support_by_loops():
    f, y = source()
    t = 0.7 * drawn([0.4, 0.3, 0.0, 0.3], n=150)[0] + 1
    m = np.mean([f[y == c].mean(0) for c in range(CLASSES)], axis=0)
    s = np.sqrt(np.mean([(f[y == c] ** 2).mean(0) for c in range(CLASSES)], axis=0) - m**2)
    x = np.array([m + s * (row - t.mean(0)) / t.std(0) for row in t])
    p = np.exp(head(x)) / np.exp(head(x)).sum(1, keepdims=True)
    q = []
    for i in range(len(x)):
        cosine = [-9 if j == i else x[i] @ x[j] / np.linalg.norm(x[i]) / np.linalg.norm(x[j]) for j in range(len(x))]
        near = sorted(range(len(x)), key=lambda j: -cosine[j])[:15]
        q.append(np.mean([p[j] for j in (i, *near)], axis=0))
    best = [np.mean(sorted(column)[-(len(x) // (10 * CLASSES)) :]) for column in np.array(q).T]
    assert class_support(f, y, t, head, CLASSES) == pytest.approx(best, abs=2e-3)  # a little is added to the spread


@pytest.mark.parametrize("missing", range(CLASSES))
def test_a_missing_class_has_no_support_although_rows_are_predicted_as_it(missing):
    (f, y), (rows, truth), even = wide(400), wide(800, seed=5), np.full(CLASSES, 1 / CLASSES)
    target, truth = shifted(rows[truth != missing]), truth[truth != missing]
    found = evidence(f, y, target, first_four, even)
    assert found.present.tolist() == [c != missing for c in range(CLASSES)]
    assert evidence(f, y, shifted(rows), first_four, even).present.all()
    true = np.bincount(truth, minlength=CLASSES) / len(truth)
    target = (target - target.mean(0)) / target.std(0) * f.std(0) + f.mean(0)
    without = prototype_shares(f, y, target, CLASSES, found.present)
    assert without[missing] == 0
    with_it = prototype_shares(f, y, target, CLASSES)
    assert with_it[missing] > 0
    assert np.abs(without - true).sum() < np.abs(with_it - true).sum()


@pytest.mark.parametrize("most", range(CLASSES))
def test_a_dominant_class_tears_even_classes_apart(most):
    (f, y), (rows, truth) = wide(400), wide(2000, seed=3)
    moved = shifted(rows)
    few = np.concatenate([np.flatnonzero(truth == most)[:123], np.flatnonzero(truth != most)[:27]])
    wrong = np.where(np.arange(CLASSES) == (most + 1) % CLASSES, 0.7, 0.1)  # what EM might believe
    assert evidence(f, y, moved, first_four, wrong).uneven == 0
    found = evidence(f, y, moved[few], first_four, wrong)
    assert found.uneven > 0.5
    assert found.shares.argmax() == most
    assert found.present.all()  # the others are rare, and not missing


def test_of_many_classes_none_is_called_missing():
    y = np.arange(440) % 11
    f = 6 * np.eye(11)[y] + np.random.default_rng(0).normal(size=(440, 11))
    assert evidence(f, y, f[y > 0], lambda x: x, np.full(11, 1 / 11)).present.all()


def test_consistent_shares_are_what_is_predicted_for_them():
    f, y = source()
    target, truth = drawn([0.6, 0.2, 0.1, 0.1])
    true = np.bincount(truth, minlength=CLASSES) / len(truth)
    assert consistent_shares(f, y, target + 2, head, CLASSES) == pytest.approx(true, abs=0.05)
    assert consistent_shares(f, y, 3 * target, head, CLASSES) == pytest.approx(
        consistent_shares(f, y, target, head, CLASSES), abs=1e-3
    )


def test_prototypes_follow_rows_that_moved():
    f, y = source()
    target, truth = drawn([0.5, 0.3, 0.1, 0.1])
    true = np.bincount(truth, minlength=CLASSES) / len(truth)
    assert prototype_shares(f, y, target + 1.5, CLASSES) == pytest.approx(true, abs=0.05)
    assert prototype_shares(f, y, 3 * target, CLASSES) == pytest.approx(prototype_shares(f, y, target, CLASSES))
    assert prototype_shares(f, y, target[:0], CLASSES).tolist() == [0, 0, 0, 0]


def test_the_head_is_found_again():
    f, _ = source()
    rng = np.random.default_rng(5)
    w, b = rng.normal(size=(CLASSES, 3)), rng.normal(size=3)
    found = linear_head(f, f @ w + b)
    x = rng.normal(size=(7, CLASSES))
    assert found(x) == pytest.approx(x @ w + b, abs=1e-6)
