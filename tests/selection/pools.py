"""Candidates made up for tests: clusters of features, and logits that are right to some degree."""

import numpy as np

from tsadapt.selection import Mixed, Predictions


def logits_for(labels, classes, size=6.0):
    return size * np.eye(classes)[labels]


def candidate(seed=0, n=200, classes=4, wrong=0.1, size=6.0, noise=0.3, k=8, guess=None):
    """A candidate whose guesses are wrong for a share of the rows; the truth depends on `n` and `classes` alone."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % classes
    centres = 3 * np.random.default_rng(99).normal(size=(classes, k))
    features_t = centres[truth] + noise * rng.normal(size=(n, k))
    if guess is None:
        guess = truth.copy()
        flip = rng.permutation(n)[: round(wrong * n)]
        guess[flip] = (guess[flip] + 1) % classes
    y_v = np.arange(40) % classes
    return Predictions(
        features_s=centres[np.arange(80) % classes] + noise * rng.normal(size=(80, k)) - 0.3,
        features_v=centres[y_v] + noise * rng.normal(size=(40, k)) - 0.3,
        logits_v=logits_for(y_v, classes, size) + rng.normal(size=(40, classes)),
        labels_v=y_v,
        features_t=features_t,
        logits_t=logits_for(guess, classes, size) + 0.5 * rng.normal(size=(n, classes)),
        weight=centres[None] + 0.0,
        mixed=mixtures(guess, classes, wrong, rng),
    )


def mixtures(guess, classes, wrong, rng):
    a, b = rng.integers(0, len(guess), (2, 100))
    held = np.where(rng.random(100) < wrong, (guess[a] + 1) % classes, guess[a])
    return Mixed(a, b, logits_for(held, classes))


def targets(logits, features=None):
    """A candidate of which only the target matters."""
    logits = np.asarray(logits, dtype=np.float32)
    features = logits if features is None else np.asarray(features, dtype=np.float32)
    none = np.zeros((0, logits.shape[1]), dtype=np.float32)
    return Predictions(none, none, none, np.zeros(0, dtype=np.int64), features, logits)
