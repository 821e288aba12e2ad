"""How well two sets of features can be told apart, and how target-like a source row is.

Shapes: n_s and n_t rows of K features.
"""

import warnings
from typing import Any, Literal

import numpy as np

__all__ = ["batch_a_distance", "importance_weights", "proxy_a_distance"]

MOST_ROWS = 2000
"""Rows of each domain that are looked at: a linear classifier needs no more, and the domains are balanced."""


def proxy_a_distance(features_s: np.ndarray, features_t: np.ndarray, seed: int = 0) -> float:
    """Proxy A-distance d_A = 2(1 − 2ε), ε the held-out error of a linear domain classifier (Ben-David et al., 2007).

    Near 0 when the domains look alike, 2 when they can be told apart without error; slightly below 0 by chance. The
    domains are balanced, standardised together, and split 80/20.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(500, 3)), rng.normal(size=(500, 3))
    >>> abs(proxy_a_distance(a, b)) < 0.4, proxy_a_distance(a, b + 9)
    (True, 2.0)
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    n = min(len(features_s), len(features_t), MOST_ROWS)
    if n < 5:
        return float("nan")
    rng = np.random.default_rng(seed)
    rows = [f[rng.choice(len(f), n, replace=False)] for f in (features_s, features_t)]
    x, domain = np.concatenate(rows), np.repeat([1, 0], n)
    parts = train_test_split(x, domain, test_size=0.2, random_state=seed % 2**32, stratify=domain)
    x_train, x_test, d_train, d_test = parts
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=200, tol=1e-3))
    error = 1 - classifier.fit(x_train, d_train).score(x_test, d_test)
    return float(2 * (1 - 2 * error))


def batch_a_distance(features_s: np.ndarray, features_t: np.ndarray) -> float:
    """A rough d_A = 2(1 − 2ε) of a single batch, cheap enough to be logged.

    ε is of ridge classifiers of either half, judged by the other. Noisy, and off by what little a batch can
    teach a classifier: `proxy_a_distance` is the one to report.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(64, 3)), rng.normal(size=(64, 3))
    >>> abs(batch_a_distance(a, b)) < 0.8, batch_a_distance(a, b + 9)
    (True, 2.0)
    """
    n = min(len(features_s), len(features_t)) // 2
    if n < 1:
        return float("nan")
    x = np.concatenate([features_s[:n], features_t[:n], features_s[n : 2 * n], features_t[n : 2 * n]]).astype(
        np.float64
    )
    x = (x - x.mean(0)) / (x.std(0) + 1e-8)
    gram = x @ x.T / x.shape[1] + 1  # the one is the intercept
    domain = np.tile(np.repeat([1.0, -1.0], n), 2)
    halves = (slice(None, 2 * n), slice(2 * n, None))
    wrong = 0.0
    for train, test in (halves, halves[::-1]):
        dual = np.linalg.solve(gram[train, train] + 0.1 * np.eye(2 * n), domain[train])
        wrong += float((np.sign(gram[test, train] @ dual) != domain[test]).mean()) / 2
    return float(2 * (1 - 2 * wrong))


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
            _train(model, strength, x_train, d_train)
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
    passes = max(30, 600 * batch // rows)  # so that a small domain is learned too
    return MLPClassifier((width, width), max_iter=passes, batch_size=batch, random_state=seed)


def _train(model: Any, strength: float, x: np.ndarray, domain: np.ndarray) -> None:
    """Train a classifier of domains with weight decay `strength`."""
    from sklearn.exceptions import ConvergenceWarning

    # scikit-learn's C is of the summed loss, a weight decay of the mean one.
    model.set_params(**({"C": 1 / (strength * len(x))} if hasattr(model, "C") else {"alpha": strength}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, domain)
