"""How well two sets of features can be told apart.

Shapes: n_s and n_t rows of K features.
"""

import numpy as np

__all__ = ["batch_a_distance", "proxy_a_distance"]

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
