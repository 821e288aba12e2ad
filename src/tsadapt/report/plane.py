"""Rows of both domains in a plane, by t-SNE; which rows, and where, is a function of the rows alone.

Shapes: n_s and n_t rows of K features, P points.
"""

import numpy as np

__all__ = ["MOST_POINTS", "embedded", "some_rows"]

MOST_POINTS = 300
"""Points of a domain: enough to see classes, and few enough for a phone."""

DIMENSIONS = 30
"""Principal components that t-SNE looks at."""

ITERATIONS = 600
"""Of t-SNE; so few points hardly move after them."""


def some_rows(rows: int, most: int = MOST_POINTS) -> np.ndarray:
    """At most so many row numbers, at random but always the same, in order.

    >>> some_rows(3).tolist(), len(some_rows(1000))
    ([0, 1, 2], 300)
    """
    return np.sort(np.random.default_rng(0).permutation(rows)[:most])


def embedded(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Points (n_s + n_t, 2) from 0 to 1: t-SNE of the principal components of both; fewer than ten rows by these alone.

    >>> x = np.random.default_rng(0).normal(size=(20, 3))
    >>> embedded(x, x + 5).shape
    (40, 2)
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    x = np.concatenate([source, target]).astype(np.float64)
    x = x - x.mean(0)
    scale = np.abs(x).max()
    if not scale > 0:  # all rows are the same
        return np.full((len(x), 2), 0.5)
    x /= scale
    points = PCA(min(DIMENSIONS, *x.shape), svd_solver="full").fit_transform(x)
    if len(x) >= 10 and points.shape[1] > 1:
        spread = float(points[:, 0].std()) or 1.0
        start = 1e-4 * points[:, :2] / spread
        perplexity = min(30.0, (len(x) - 1) / 3)
        tsne = TSNE(2, perplexity=perplexity, init=start, max_iter=ITERATIONS, random_state=0, n_jobs=1)
        points = tsne.fit_transform(points)
    points = np.pad(points[:, :2], ((0, 0), (0, max(2 - points.shape[1], 0))))
    low, size = points.min(0), max(float(np.ptp(points, axis=0).max()), 1e-12)
    middle = (points.max(0) + low) / 2
    found: np.ndarray = (points - middle) / size + 0.5
    return found
