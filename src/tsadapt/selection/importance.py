"""How target-like a source row is: importance weights by a classifier of domains.

Shapes: n_s and n_t rows of K features; weights w (n,) of n other rows of the source.
"""

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

__all__ = ["Weighting", "effective_sample_size", "importance_weights", "weighting"]

MOST_ROWS = 2000
"""Rows of each domain that the classifiers are trained on."""

STRENGTHS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5)
"""Weight decays of DEV's domain classifiers, strongest first."""

MOST_FEATURES = 256
"""Wider features are projected on so many principal components before domains are told apart."""

SMALLEST = 1e-6
"""Probabilities of a domain are kept from going below."""


def importance_weights(
    features_s: np.ndarray,
    features_t: np.ndarray,
    at: np.ndarray,
    *,
    classifier: Literal["linear", "mlp"] = "linear",
    splits: int = 3,
    seed: int = 0,
) -> np.ndarray:
    """W = (n_s/n_t) P(target|f)/P(source|f) for the rows of `at`, by a regularised domain classifier.

    Of every weight decay one classifier is trained on 80 % of the rows, and the one with the best accuracy on the rest
    is kept (the strongest of equals); the weights are the mean over `splits` such choices, clipped at √n times their
    mean (truncated importance sampling, Ionides, 2008).

    >>> rng = np.random.default_rng(0)
    >>> s, t = rng.normal(size=(1000, 1)), 1 + rng.normal(size=(1000, 1))
    >>> w = importance_weights(s, t, np.array([[-1.0], [0.5], [1.5]]))  # the true ones: exp(f − 1/2)
    >>> bool(w[0] < 0.5 < w[1] < 1.5 < w[2])
    True
    """
    from sklearn.decomposition import PCA
    from sklearn.model_selection import train_test_split

    if not len(at):
        return np.zeros(0)
    rng = np.random.default_rng(seed)
    f_s, f_t = (f[rng.permutation(len(f))[:MOST_ROWS]] for f in (features_s, features_t))
    x, domain = np.concatenate([f_s, f_t]).astype(np.float64), np.repeat([0, 1], [len(f_s), len(f_t)])
    if min(len(f_s), len(f_t)) < 5:
        return np.ones(len(at))
    mean, deviation = x.mean(0), x.std(0)
    deviation[deviation < 1e-8] = 1.0
    x, v = (x - mean) / deviation, (at - mean) / deviation
    if x.shape[1] > MOST_FEATURES:
        pca = PCA(min(MOST_FEATURES, len(x)), svd_solver="randomized", random_state=seed).fit(x)
        x, v = pca.transform(x), pca.transform(v)
    weights = np.zeros(len(at))
    for split in range(splits):
        parts = train_test_split(x, domain, test_size=0.2, random_state=seed + split, stratify=domain)
        x_train, x_test, d_train, d_test = parts
        model, best, p_t = _domain_classifier(classifier, len(x_train), x.shape[1], seed), -1.0, np.zeros(len(at))
        for strength in STRENGTHS:
            _train(classifier, model, strength, x_train, d_train)
            accuracy = float(model.score(x_test, d_test))
            if accuracy > best:
                best, p_t = accuracy, np.clip(model.predict_proba(v)[:, 1], SMALLEST, 1 - SMALLEST)
            if best == 1:
                break
        weights += len(f_s) / len(f_t) * p_t / (1 - p_t) / splits
    clipped: np.ndarray = np.minimum(weights, np.sqrt(len(weights)) * weights.mean())
    return clipped


def _domain_classifier(kind: str, rows: int, width: int, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    if kind == "linear":  # each weight decay starts from what the stronger one found
        return LogisticRegression(solver="newton-cholesky", max_iter=20, tol=1e-3, warm_start=True)
    width, batch = max(width, 16), min(128, rows)
    passes = max(30, 300 * batch // rows)  # so that a small domain is learned too
    return MLPClassifier((width, width), max_iter=passes, batch_size=batch, random_state=seed)


def _train(kind: str, model: Any, strength: float, x: np.ndarray, domain: np.ndarray) -> None:
    """Train a classifier of domains with weight decay `strength`, which is of the mean loss over rows."""
    from sklearn.exceptions import ConvergenceWarning

    # scikit-learn's C is of the loss summed over all rows, its alpha of the loss summed over a batch.
    penalty = {"C": 1 / (strength * len(x))} if kind == "linear" else {"alpha": strength * model.batch_size}
    model.set_params(**penalty)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, domain)


@dataclass(frozen=True)
class Weighting:
    """What an estimate by importance weights rests on.

    The rows that it is worth in effect, the largest weight, and the mean, which is near 1 unless the domains are apart.
    """

    effective_sample_size: float
    largest: float
    mean: float


def weighting(weights: np.ndarray) -> Weighting:
    """What estimates by these weights rest on; NaN without weights."""
    if not len(weights):
        return Weighting(float("nan"), float("nan"), float("nan"))
    return Weighting(effective_sample_size(weights), float(weights.max()), float(weights.mean()))


def effective_sample_size(weights: np.ndarray) -> float:
    """(Σw)²/Σw²: how many equally weighted rows the weighted ones are worth.

    >>> effective_sample_size(np.array([1.0, 1.0, 0.0]))
    2.0
    """
    squares = float((weights**2).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0
