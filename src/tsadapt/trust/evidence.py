"""Whether class shares explain how a target differs from the source, or whether its rows look different.

A source-only network that puts a foreign domain into one class looks as if that class dominated, and EM believes it.
But rows of which most are of one class differ in another way too: between them there is little spread.

Shapes: n_s source rows with labels, n_t target rows, K features before a linear head, C classes; shares π (C,).
"""

from collections.abc import Callable

import numpy as np

__all__ = ["combined_shares", "explained_part", "linear_head", "prototype_shares"]

Head = Callable[[np.ndarray], np.ndarray]
"""Features (n, K) to logits (n, C)."""

NONE, ALL = 0.4, 0.6
"""Up to which ratio shares explain nothing, and from which everything; fixed on PACS and the embedded digits."""

MOST_ROWS = 5000
SMALL = 1e-3
"""Of the mean spread, added to every feature's: some are constant."""

ROUNDS, OWN = 10, 5
"""Of the search for prototypes, and how many rows the source's counts for."""


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
    ratio = 1 / (1 + distance[1] / max(distance[0], 1e-12))
    return float(np.clip((ratio - NONE) / (ALL - NONE), 0, 1))


def combined_shares(even_view: np.ndarray, by_labels: np.ndarray, part: float) -> np.ndarray:
    """(1 − λ) · the shares of a view that looks different rows alike + λ · those that assume that rows look alike.

    >>> combined_shares(np.array([0.5, 0.5]), np.array([0.9, 0.1]), 0.5).tolist()
    [0.7, 0.3]
    """
    found: np.ndarray = (1 - part) * even_view + part * by_labels
    return found


def prototype_shares(features_s: np.ndarray, labels_s: np.ndarray, features_t: np.ndarray, classes: int) -> np.ndarray:
    """The shares (C,) of target rows nearest, by cosine, to each class's prototype, which moves to its rows.

        m_c ∝ 5 m_c^s + Σ_{j: c nearest} f_j/‖f_j‖,    ten times, from the mean m_c^s of the source's unit rows

    >>> f_s, f_t = np.eye(2)[[0, 0, 1, 1]], np.array([[2.0, 0.1], [3.0, 1.0], [0.2, 1.0], [1.0, 0.3]])
    >>> prototype_shares(f_s, np.array([0, 0, 1, 1]), f_t, 2).tolist()
    [0.75, 0.25]
    """
    f_s, f_t = _unit(features_s), _unit(features_t)
    sums = np.zeros((classes, f_s.shape[1]))
    np.add.at(sums, labels_s, f_s)
    m = start = _unit(sums)
    for _ in range(ROUNDS):
        nearest = (f_t @ m.T).argmax(1)
        sums = np.zeros_like(start)
        np.add.at(sums, nearest, f_t)
        m = _unit(sums + OWN * start)
    share: np.ndarray = np.bincount((f_t @ m.T).argmax(1), minlength=classes) / max(len(f_t), 1)
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
