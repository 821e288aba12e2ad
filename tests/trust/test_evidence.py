"""Whether class shares explain a target: draws from the source, rows that were moved, and a search by hand."""

import numpy as np
import pytest

from tsadapt.trust.evidence import combined_shares, explained_part, linear_head, prototype_shares

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
    even, sure = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    assert combined_shares(even, sure, 0.0).tolist() == even.tolist()
    assert combined_shares(even, sure, 1.0).tolist() == sure.tolist()
    assert combined_shares(even, sure, 0.3) == pytest.approx([0.65, 0.35])


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
