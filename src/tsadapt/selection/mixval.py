"""MixVal: does the network keep its word between two target rows? (Hu et al., 2023.)"""

from collections.abc import Callable

import numpy as np

from tsadapt.selection.logits import Logits, guesses
from tsadapt.selection.predictions import Mixed

__all__ = ["SHARE", "mix", "mixval_accuracies"]

SHARE = 0.55
"""λ: the share of the first row of a pair, a little more than half so that it should prevail."""

Forward = Callable[[np.ndarray, np.ndarray, float], Logits]
"""From the rows a and b and λ to the logits of λ x_a + (1 − λ) x_b."""


def mix(guess: np.ndarray, forward: Forward, pairs: int = 2000, seed: int = 0) -> Mixed:
    """Draw pairs of target rows, about half of them of the same predicted class, and forward their mixtures."""
    rng = np.random.default_rng(seed)
    n = len(guess)
    a = rng.permutation(n)[:pairs] if n > 1 else np.zeros(0, dtype=int)
    b = rng.integers(0, max(n, 1), len(a))
    by_class = {c: np.flatnonzero(guess == c) for c in np.unique(guess)}
    for i in range(0, len(a), 2):  # every second pair from one class
        b[i] = rng.choice(by_class[guess[a[i]]])
    apart = a != b
    a, b = a[apart], b[apart]
    return Mixed(a, b, forward(a, b, SHARE))


def mixval_accuracies(guess: np.ndarray, mixed: Mixed) -> tuple[float, float]:
    """How often a mixture is predicted as its larger part: over pairs of one class, and over pairs of two.

    NaN where there is no such pair. Candidates are compared by their ranks in both.

    >>> mixed = Mixed(np.array([0, 0]), np.array([1, 2]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    >>> mixval_accuracies(np.array([0, 0, 1]), mixed)
    (1.0, 0.0)
    """
    same = guess[mixed.a] == guess[mixed.b]
    right = guesses(mixed.logits) == guess[mixed.a]
    return tuple(float(right[part].mean()) if part.any() else float("nan") for part in (same, ~same))  # type: ignore[return-value]
