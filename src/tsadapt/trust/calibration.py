"""Probabilities that mean what they say: temperatures fitted on labelled rows, and how far confidence is from accuracy.

Shapes: n rows of C classes, labels y (n,), weights w (n,).
"""

import numpy as np

from tsadapt.selection.logits import log_softmax

__all__ = ["bias_corrected_temperature", "calibration_error", "fit_temperature"]

COLDEST, WARMEST = 0.05, 20.0
"""Temperatures are looked for between these."""

BINS = 15
"""Of the usual calibration error (Guo et al., 2017)."""


def fit_temperature(
    logits: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None, smoothing: float | None = None
) -> float:
    """T that minimises −Σ_i w_i log softmax(z_i/T)[y_i] / Σ_i w_i (Guo et al., 2017).

    A label counts as 1 − ε + ε/C of its class and ε/C of every other: rows that are all predicted right would otherwise
    ask for T = 0, and certainty. `smoothing` is ε, by default 1/(n + 2), as in Platt's scaling. Without rows T is 1.

    >>> z = np.log(np.array([[0.9, 0.1]] * 5))  # says 0.9, and is right four times in five
    >>> T = fit_temperature(z, np.array([0, 0, 0, 0, 1]), smoothing=0.0)
    >>> p = 1 / (1 + np.exp(-np.log(9) / T))
    >>> round(T, 2), round(float(p), 2)
    (1.58, 0.8)
    """
    from scipy.optimize import minimize_scalar

    if not len(labels):
        return 1.0
    z, target = logits.astype(np.float64), _smoothed(labels, logits.shape[1], smoothing)
    w = np.ones(len(labels)) if weights is None else weights.astype(np.float64)

    def loss(log_t: float) -> float:
        return float(-(w * (target * log_softmax(z / np.exp(log_t))).sum(1)).sum() / w.sum())

    bounds = (float(np.log(COLDEST)), float(np.log(WARMEST)))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))


def bias_corrected_temperature(
    logits: np.ndarray, labels: np.ndarray, smoothing: float | None = None
) -> tuple[float, np.ndarray]:
    """T and b (C,) that minimise the cross-entropy of softmax(z/T + b) with the labels (Alexandari et al., ICML 2020).

    The biases make the mean probabilities of the rows equal their class shares, which EM relies on. Σ_c b_c = 0;
    `smoothing` as in `fit_temperature`.

    >>> z = np.log(np.array([[0.5, 0.5]] * 4))  # knows nothing, and three of four rows are of the first class
    >>> T, b = bias_corrected_temperature(z, np.array([0, 0, 0, 1]), smoothing=0.0)
    >>> p = np.exp(b) / np.exp(b).sum()
    >>> p.round(3).tolist()
    [0.75, 0.25]
    """
    from scipy.optimize import minimize

    n, classes = logits.shape
    if not n:
        return 1.0, np.zeros(classes)
    z, target = logits.astype(np.float64), _smoothed(labels, classes, smoothing)

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        log_p = log_softmax(z * np.exp(-x[0]) + x[1:])
        error = (np.exp(log_p) - target) / n
        gradient = np.concatenate([[-(error * z).sum() * np.exp(-x[0])], error.sum(0)])
        return float(-(target * log_p).sum() / n), gradient

    bounds = [(float(np.log(COLDEST)), float(np.log(WARMEST))), *[(None, None)] * classes]
    found = minimize(loss, np.zeros(1 + classes), jac=True, method="L-BFGS-B", bounds=bounds, options=SOLVER).x
    return float(np.exp(found[0])), found[1:] - found[1:].mean()


SOLVER = {"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-8}


def _smoothed(labels: np.ndarray, classes: int, smoothing: float | None) -> np.ndarray:
    e = 1 / (len(labels) + 2) if smoothing is None else smoothing
    target: np.ndarray = (1 - e) * np.eye(classes)[labels] + e / classes
    return target


def calibration_error(probability: np.ndarray, right: np.ndarray, bins: int = BINS) -> float:
    """Σ_b n_b/n |accuracy_b − mean probability_b| over bins of equal width (expected calibration error).

    `probability` (n,) that a row is predicted right, `right` (n,) whether it is.

    >>> calibration_error(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, True, True, False]))
    0.1
    """
    if not len(probability):
        return float("nan")
    place = np.minimum((probability * bins).astype(int), bins - 1)
    surplus = np.bincount(place, probability - right, minlength=bins)
    return round(float(np.abs(surplus).sum() / len(probability)), 12)
