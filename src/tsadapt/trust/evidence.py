"""What a source-only network's features of the target say of its classes: which are there, and whether one dominates.

Target rows get the mean and spread of source rows, which takes much of the shift away. A class that is there has some
rows that are then predicted as it together with all their neighbours; rows of other classes that are put into a class
that is missing have neighbours that are not. Where one class dominates, even shares are the wrong ones to normalise
by: its rows are torn apart, and nearly every class loses that support. The shares are then those that explain the
target, for a source-only network that puts a foreign domain into one class looks as if that class dominated.

Shapes: n_s source rows with labels, n_t target rows, K features before a linear head, C classes; shares π (C,).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tsadapt.selection.logits import softmax
from tsadapt.trust.rows import nearest_rows

__all__ = [
    "Evidence",
    "class_support",
    "consistent_shares",
    "evidence",
    "explained_part",
    "linear_head",
    "prototype_shares",
]

Head = Callable[[np.ndarray], np.ndarray]
"""Features (n, K) to logits (n, C)."""

NONE, ALL = 0.4, 0.6
"""Up to which ratio shares explain nothing, and from which everything; fixed on PACS and the embedded digits."""

CLEAR = 0.7, 0.9
"""The same of whether the target is uneven at all: this, or the support that its classes lose, must say so."""

MOST_ROWS = 5000
SMALL = 1e-3
"""Of the mean spread, added to every feature's: some are constant."""

ROUNDS, OWN = 10, 5
"""Of the search for prototypes, and how many rows the source's counts for."""

NEIGHBOURS, OF_EVEN = 15, 2
"""Rows that support each other: so many nearest ones, but at most half of an even class."""

TOP = 10
"""A class is judged by its best supported rows, a tenth of an even class."""

PRESENT = 0.8
"""A class is there if it has at least so much of the support that the classes have at the median."""

TORN, WHOLE, HALF = 0.8, 0.9, 0.5
"""Part of the source's support, at the median, up to which even classes are torn apart, and from which they are not. If
they are torn by more than half, no class is called missing. All of these are fixed on PACS and the embedded digits."""

MOST_CLASSES = 10
"""Support is asked with at most so many classes. Of more, one that is missing costs few rows, while some that are there
have no support: a network recognises none of their rows."""

SEARCH = 30
"""Rounds of the search for consistent shares."""


@dataclass(frozen=True)
class Evidence:
    """Which classes the target has, `present` (C,); how `uneven` it is, 0 to 1; and its `shares` (C,) where it is."""

    present: np.ndarray
    uneven: float
    shares: np.ndarray

    def combined(self, even_view: np.ndarray) -> np.ndarray:
        """(1 − λ) · the shares of a view that makes classes even + λ · those that explain the target.

        >>> Evidence(np.ones(2, dtype=bool), 0.5, np.array([0.9, 0.1])).combined(np.array([0.5, 0.5])).tolist()
        [0.7, 0.3]
        """
        found: np.ndarray = (1 - self.uneven) * even_view + self.uneven * self.shares
        return found


def evidence(
    features_s: np.ndarray, labels_s: np.ndarray, features_t: np.ndarray, head: Head, em: np.ndarray
) -> Evidence:
    """Which classes are there, and the shares if they are uneven, by the shares that EM found.

        present_c = v_c ≥ 0.8 · median v,  or τ > 1/2,    τ = (0.9 − median v / median v^s)/0.1 between 0 and 1
        shares = (ρ · EM + α · π)/(ρ + α),    λ = max(τ · (ρ + α), (r − 0.7)/0.2 between 0 and 1)

    v is the support of the target's classes, v^s that of the source's own, so that τ says how torn the classes are. r
    says whether EM's shares explain the target better than even ones, and ρ is the part that `explained_part` makes of
    it. π are the consistent shares; α is 1 − ρ where the search for them ends at the class that it leant to at first,
    else 0. With more than ten classes τ is 0, and all classes are present.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(400) % 4
    >>> f_s = 6 * np.eye(4)[y] + rng.normal(size=(400, 4))
    >>> f_t = (6 * np.eye(4)[y] + rng.normal(size=(400, 4)))[y > 0]
    >>> found = evidence(f_s, y, f_t, lambda f: f, np.full(4, 0.25))
    >>> found.present.tolist(), found.uneven
    ([False, True, True, True], 0.0)
    """
    classes = len(em)
    if not len(features_s) or not len(features_t):
        return Evidence(np.ones(classes, dtype=bool), 0.0, np.full(classes, 1 / classes))
    present, torn = np.ones(classes, dtype=bool), 0.0
    if classes <= MOST_CLASSES:
        known = np.unique(labels_s)
        support = class_support(features_s, labels_s, features_t, head, classes)
        middle = float(np.median(support[known]))
        usual = float(np.median(class_support(features_s, labels_s, features_s, head, classes)[known]))
        torn = 1 - _ramp(middle / max(usual, 1e-12), TORN, WHOLE)
        present = (support >= PRESENT * middle) | (torn > HALF)
    ratio = explained_ratio(features_s, labels_s, features_t, head, em)
    part = _ramp(ratio, NONE, ALL)
    first, consistent = (
        consistent_shares(features_s, labels_s, features_t, head, classes, rounds) for rounds in (1, SEARCH)
    )
    agreed = (1 - part) * float(first.argmax() == consistent.argmax())
    shares = (part * em + agreed * consistent) / (part + agreed) if part + agreed > 0 else em
    return Evidence(present, max(torn * (part + agreed), _ramp(ratio, *CLEAR)), shares)


def class_support(
    features_s: np.ndarray, labels_s: np.ndarray, features_t: np.ndarray, head: Head, classes: int
) -> np.ndarray:
    """V (C,): how surely some target rows, with their neighbours, are of each class.

        x_j = m_s + s_s (f_j − m_t)/s_t,    q_j = mean of softmax(z(x_i)) over row j and its nearest rows i
        v_c = mean of the n_t/(10 C) largest q_jc

    m and s are mean and spread: of source rows with even classes, and of the target. Nearest are rows by the cosine of
    x, 15 or n_t/(2 C) of them.

    >>> f = np.repeat(np.eye(3), 20, axis=0)
    >>> class_support(f, np.repeat([0, 1, 2], 20), f, lambda x: 50 * x, 3).round(2).tolist()
    [1.0, 1.0, 1.0]
    """
    shape = _Moments(features_s, labels_s, features_t, classes)
    x = shape.target(shape.even)
    p = softmax(head(x))
    near = nearest_rows(x, min(NEIGHBOURS, max(len(x) // (OF_EVEN * classes), 1)))
    q = (p + p[near].sum(1)) / (1 + near.shape[1])
    top = max(len(x) // (TOP * classes), 1)
    found: np.ndarray = np.sort(q, axis=0)[-top:].mean(0)
    return found


def consistent_shares(
    features_s: np.ndarray,
    labels_s: np.ndarray,
    features_t: np.ndarray,
    head: Head,
    classes: int,
    rounds: int = SEARCH,
) -> np.ndarray:
    """Shares π (C,) that are predicted for a target with the mean and spread of source rows drawn by just these shares.

        π ← (π + mean_j softmax(z(x_j)))/2,    x_j = m_π + s_π (f_j − m_t)/s_t,    thirty times from even classes

    >>> f = np.repeat(np.eye(2), [50, 50], axis=0)
    >>> target = np.repeat(np.eye(2), [20, 80], axis=0)
    >>> consistent_shares(f, np.repeat([0, 1], 50), target, lambda x: 50 * x, 2).round(2).tolist()
    [0.2, 0.8]
    """
    shape = _Moments(features_s, labels_s, features_t, classes)
    share: np.ndarray = shape.even
    for _ in range(rounds):
        share = (share + softmax(head(shape.target(share))).mean(0)) / 2
    return share


class _Moments:
    """The means and mean squares of each class in the source, and target rows without theirs; of many rows, of some."""

    def __init__(self, features_s: np.ndarray, labels_s: np.ndarray, features_t: np.ndarray, classes: int) -> None:
        f, y = features_s[_some(len(features_s))].astype(np.float64), labels_s[_some(len(labels_s))]
        count = np.bincount(y, minlength=classes)
        self.even = (count > 0) / (count > 0).sum()
        self.mean, self.square = np.zeros((2, classes, f.shape[1]))
        np.add.at(self.mean, y, f)
        np.add.at(self.square, y, f**2)
        self.mean /= np.maximum(count, 1)[:, None]
        self.square /= np.maximum(count, 1)[:, None]
        t = features_t[_some(len(features_t))].astype(np.float64)
        self.rows = (t - t.mean(0)) / (t.std(0) + SMALL * float(f.std(0).mean()) + 1e-12)

    def target(self, shares: np.ndarray) -> np.ndarray:
        """Target rows with the mean and spread of source rows drawn by these shares."""
        mean = shares @ self.mean
        found: np.ndarray = self.rows * np.sqrt(np.maximum(shares @ self.square - mean**2, 0)) + mean
        return found


def _ramp(value: float, low: float, high: float) -> float:
    """From 0 at `low` to 1 at `high`."""
    return float(np.clip((value - low) / (high - low), 0, 1))


def _some(rows: int, seed: int = 0) -> np.ndarray:
    """The numbers of all rows, or of some thousands."""
    found: np.ndarray = np.sort(np.random.default_rng(seed).permutation(rows)[:MOST_ROWS])
    return found


def explained_part(
    features_s: np.ndarray, labels_s: np.ndarray, features_t: np.ndarray, head: Head, shares: np.ndarray, seed: int = 0
) -> float:
    """λ from 0 to 1: whether shares π explain the predictions for target rows that get the source's mean and spread.

        z(f; m, s) = head(m_s + s_s (f − m)/s)
        o_c = P_j[argmax z(f_j; m_t, s_t) = c],    g_c(π) = Σ_i w_i [argmax z(f_i; m_π, s_π) = c],    w_i ∝ π_{y_i}
        r = ‖g(u) − o‖² / (‖g(u) − o‖² + ‖g(π) − o‖²),    λ = (r − 0.4)/0.2  between 0 and 1

    Source rows drawn by shares π are predicted as g(π) if they get the mean and spread that all of them have. What is
    the same of the target, o, is near g(π) if the target is such a draw, and near that of even classes, g(u), if not.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(300) % 3
    >>> f_s = 6 * np.eye(3)[y] + rng.normal(size=(300, 3))
    >>> dominated = f_s[np.argsort(y, kind="stable")][:110]  # 100 rows of the first class, 10 of the second
    >>> moved = f_s + np.array([5, 0, 0])  # even classes, predicted as the first
    >>> for target in (dominated, moved):
    ...     print(explained_part(f_s, y, target, lambda f: f, np.array([0.9, 0.1, 0.0])))
    1.0
    0.0
    """
    return _ramp(explained_ratio(features_s, labels_s, features_t, head, shares, seed), NONE, ALL)


def explained_ratio(
    features_s: np.ndarray, labels_s: np.ndarray, features_t: np.ndarray, head: Head, shares: np.ndarray, seed: int = 0
) -> float:
    """R from 0 to 1 of `explained_part`; 0 without rows."""
    if not len(features_s) or not len(features_t):
        return 0.0
    classes = len(shares)
    rng = np.random.default_rng(seed)
    keep_s, keep_t = (np.sort(rng.permutation(n)[:MOST_ROWS]) for n in (len(features_s), len(features_t)))
    f, y, target = features_s[keep_s].astype(np.float64), labels_s[keep_s], features_t[keep_t].astype(np.float64)
    count = np.bincount(y, minlength=classes)
    mean, spread = f.mean(0), f.std(0)
    least = SMALL * float(spread.mean()) + 1e-12

    def predicted(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        m = w @ x
        s = np.sqrt(w @ (x - m) ** 2)
        found: np.ndarray = np.bincount(head((x - m) / (s + least) * spread + mean).argmax(1), w, minlength=classes)
        return found

    observed = predicted(target, np.full(len(target), 1 / len(target)))
    even = (count > 0) / (count > 0).sum()
    distance = []
    for by in (even, shares):
        w = by[y] / count[y]
        distance.append(float(((predicted(f, w / w.sum()) - observed) ** 2).sum()) if w.sum() > 0 else np.inf)
    return float(1 / (1 + distance[1] / max(distance[0], 1e-12)))


def prototype_shares(
    features_s: np.ndarray,
    labels_s: np.ndarray,
    features_t: np.ndarray,
    classes: int,
    present: np.ndarray | None = None,
) -> np.ndarray:
    """The shares (C,) of target rows nearest, by cosine, to each class's prototype, which moves to its rows.

        m_c ∝ 5 m_c^s + Σ_{j: c nearest} f_j/‖f_j‖,    ten times, from the mean m_c^s of the source's unit rows

    Only classes that are `present` (C,) get rows.

    >>> f_s, f_t = np.eye(2)[[0, 0, 1, 1]], np.array([[2.0, 0.1], [3.0, 1.0], [0.2, 1.0], [1.0, 0.3]])
    >>> prototype_shares(f_s, np.array([0, 0, 1, 1]), f_t, 2).tolist()
    [0.75, 0.25]
    """
    f_s, f_t = _unit(features_s), _unit(features_t)
    sums = np.zeros((classes, f_s.shape[1]))
    np.add.at(sums, labels_s, f_s)
    m = start = _unit(sums)
    barred = np.zeros(classes) if present is None else np.where(present, 0.0, -np.inf)
    for _ in range(ROUNDS):
        nearest = (f_t @ m.T + barred).argmax(1)
        sums = np.zeros_like(start)
        np.add.at(sums, nearest, f_t)
        m = _unit(sums + OWN * start)
    share: np.ndarray = np.bincount((f_t @ m.T + barred).argmax(1), minlength=classes) / max(len(f_t), 1)
    return share


def linear_head(features: np.ndarray, logits: np.ndarray) -> Head:
    """The linear layer between features (n, K) and logits (n, C), by least squares on at most 5,000 rows.

    >>> head = linear_head(np.eye(3), np.array([[3.0, 0.0], [1.0, 2.0], [2.0, 1.0]]))
    >>> head(np.array([[1.0, 0.0, 0.0]])).round(6).tolist()
    [[3.0, 0.0]]
    """
    x = np.hstack([features[:MOST_ROWS], np.ones((len(features[:MOST_ROWS]), 1))]).astype(np.float64)
    weight = np.linalg.lstsq(x, np.asarray(logits[:MOST_ROWS], dtype=np.float64), rcond=None)[0]
    return lambda f: f @ weight[:-1] + weight[-1]


def _unit(f: np.ndarray) -> np.ndarray:
    f = f.astype(np.float64)
    found: np.ndarray = f / np.maximum(np.linalg.norm(f, axis=1, keepdims=True), 1e-12)
    return found
