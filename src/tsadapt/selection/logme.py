"""LogME: how well labels can be read off features, before anything is trained (You et al., ICML 2021).

Shapes: N rows of K features F, C classes, r singular values s of F; σ = s².
"""

import numpy as np

__all__ = ["logme"]

EPSILON = 1e-5
"""Added to what α and β are divided by, as published: they stay finite where a fit is perfect, or useless."""

ITERATIONS, CLOSE = 200, 1e-6
"""Of the fixed point, and the relative change of α/β at which it is found."""


def logme(features: np.ndarray, labels: np.ndarray) -> float:
    """The logarithm of the maximum evidence of linear models from features to each class, per row, averaged.

        log p(y | F, α, β),  y ~ N(F w, 1/β),  w ~ N(0, I/α)     maximised over α, β for each one-hot column y

    Higher is better. It is a fixed point in α and β from α = β = 1 on, found from the singular values alone:
    γ = Σ σ/(σ + α/β), α = γ/‖m‖², β = (N − γ)/‖F m − y‖² with m the mean of w.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 3
    >>> logme(np.eye(3)[y] + 0.1 * rng.normal(size=(60, 3)), y) > 0 > logme(rng.normal(size=(60, 3)), y)
    True
    """
    f = np.asarray(features, dtype=np.float64)
    classes = np.unique(labels)
    if f.ndim != 2 or len(f) != len(labels) or len(classes) < 2:
        raise ValueError(
            f"expected features (N, K) and labels of two classes at least, found {f.shape}, {len(classes)}"
        )
    n, k = f.shape
    y = (np.asarray(labels)[:, None] == classes).astype(np.float64)
    sigma, x = _projected(f, y)
    outside = np.maximum(y.sum(0) - (x**2).sum(0), 0.0)  # ‖y‖² that no direction of the features reaches
    sigma = sigma[:, None]
    alpha = beta = np.ones(len(classes))
    for _ in range(ITERATIONS):
        t = alpha / beta
        gamma = (sigma / (sigma + t)).sum(0)
        m2 = (sigma * x**2 / (sigma + t) ** 2).sum(0)
        residual = ((t * x / (sigma + t)) ** 2).sum(0) + outside
        alpha, beta = gamma / (m2 + EPSILON), (n - gamma) / (residual + EPSILON)
        if (np.abs(alpha / beta - t) <= CLOSE * t).all():
            break
    determinant = np.log(alpha + beta * sigma).sum(0) + (k - len(sigma)) * np.log(alpha)
    evidence = (k * np.log(alpha) + n * np.log(beta) - determinant - n * np.log(2 * np.pi)) / 2
    evidence -= (beta * (residual + EPSILON) + alpha * (m2 + EPSILON)) / 2
    return float(evidence.mean() / n)


def _projected(f: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """σ (r,), and y along the left singular vectors of F (r, C), by the smaller of FᵀF and FFᵀ."""
    if len(f) > f.shape[1]:
        sigma, vectors = np.linalg.eigh(f.T @ f)
        kept = sigma > 1e-12 * max(sigma[-1], 1e-300)
        return sigma[kept], (vectors[:, kept].T @ (f.T @ y)) / np.sqrt(sigma[kept])[:, None]
    sigma, vectors = np.linalg.eigh(f @ f.T)
    kept = sigma > 1e-12 * max(sigma[-1], 1e-300)
    return sigma[kept], vectors[:, kept].T @ y
