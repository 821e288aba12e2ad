"""For each target row the probability that its prediction is right: what several networks and its neighbours say of it.

Shapes: n rows of K features and C classes, predictions ŷ (n,) of the network that is judged, M other networks.
"""

from collections.abc import Sequence

import numpy as np

__all__ = [
    "doubtful_rows",
    "nearest_rows",
    "neighbour_support",
    "probability_right",
    "second_classes",
    "support",
]

NEIGHBOURS = 5
"""Nearest rows that a row is compared with."""

MOST_ROWS = 20_000
"""Rows among which neighbours are looked for: of more, some are drawn."""

CHUNK = 2_000

SLOPE, OFFSET = 1.2, -0.64
"""How support becomes a probability; fitted on PACS and the embedded digits (`python -m paper trust`)."""

DOUBTFUL = 0.5
"""A prediction is doubtful if it is more likely wrong than right."""


def support(own: np.ndarray, others: Sequence[np.ndarray], neighbours: Sequence[np.ndarray]) -> np.ndarray:
    """How much speaks for each prediction: s = (own + mean of the others + mean of the neighbours) / 3, from 0 to 1.

    `own` (n,) is the network's calibrated probability of ŷ, `others` those that other networks give to the same class,
    and `neighbours` the shares of nearest rows with the same prediction, among the features of each other network.
    A part without any entry is left out.

    >>> support(np.array([0.9]), [np.array([0.2]), np.array([0.4])], [np.array([0.6])]).round(3).tolist()
    [0.6]
    """
    parts = [own, *(np.mean(np.stack([*part]), axis=0) for part in (others, neighbours) if len(part))]
    found: np.ndarray = np.mean(np.stack(parts), axis=0)
    return found


def neighbour_support(features: np.ndarray, guess: np.ndarray, k: int = NEIGHBOURS, seed: int = 0) -> np.ndarray:
    """The share of the k nearest other rows, by cosine of the features, that have the same prediction: (n,).

    >>> f = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> neighbour_support(f, np.array([0, 0, 1, 0]), k=1).tolist()
    [1.0, 1.0, 0.0, 0.0]
    """
    near = nearest_rows(features, k, seed)
    found: np.ndarray = (guess[near] == guess[:, None]).mean(1) if near.shape[1] else np.ones(len(features))
    return found


def nearest_rows(features: np.ndarray, k: int, seed: int = 0) -> np.ndarray:
    """The k rows (n, k) nearest to each row by cosine, itself aside; fewer where there are fewer.

    >>> nearest_rows(np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]), 1)[:, 0].tolist()
    [1, 0, 3, 2]
    """
    n = len(features)
    k = min(k, n - 1)
    if k < 1:
        return np.zeros((n, 0), dtype=np.int64)
    f = features.astype(np.float32)
    f = f / np.maximum(np.linalg.norm(f, axis=1, keepdims=True), 1e-12)
    rows = np.arange(n) if n <= MOST_ROWS else np.sort(np.random.default_rng(seed).permutation(n)[:MOST_ROWS])
    found = np.empty((n, k), dtype=np.int64)
    for start in range(0, n, CHUNK):
        mine = np.arange(start, min(start + CHUNK, n))
        near = f[mine] @ f[rows].T
        near[mine[:, None] == rows] = -np.inf  # a row is no neighbour of itself
        found[mine] = rows[np.argpartition(-near, k - 1, axis=1)[:, :k]]
    return found


def probability_right(s: np.ndarray, classes: int) -> np.ndarray:
    """P(right) = σ(a·logit s + b), at least 1/C; a and b are constants fitted on labelled targets of other tasks.

    >>> low, high = probability_right(np.array([0.2, 0.95]), 10)
    >>> bool(low < 0.2 < 0.9 < high)
    True
    """
    s = np.clip(s, 1e-3, 1 - 1e-3)
    p: np.ndarray = 1 / (1 + np.exp(-(SLOPE * np.log(s / (1 - s)) + OFFSET)))
    np.maximum(p, 1 / classes, out=p)
    return p


def doubtful_rows(probability: np.ndarray, threshold: float = DOUBTFUL) -> np.ndarray:
    """Whether each prediction is doubtful: its probability of being right is below the threshold."""
    found: np.ndarray = probability < threshold
    return found


def second_classes(p: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """The most probable class (n,) beside the predicted one, by probabilities (n, C); the same one if C = 1.

    >>> second_classes(np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]]), np.array([0, 1])).tolist()
    [1, 2]
    """
    rest = p.copy()
    rest[np.arange(len(p)), guess] = -np.inf
    found: np.ndarray = rest.argmax(1) if p.shape[1] > 1 else guess.copy()
    return found
