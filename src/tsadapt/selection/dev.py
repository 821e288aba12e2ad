"""Deep embedded validation: the target risk from labelled source rows, weighted by how target-like they are.

Shapes: n held-out source rows with losses l (n,) and importance weights w (n,). (You et al., ICML 2019.)
"""

import numpy as np

from tsadapt.selection.importance import importance_weights
from tsadapt.selection.logits import blocks, log_softmax
from tsadapt.selection.predictions import Predictions
from tsadapt.selection.validators import validator

__all__ = ["dev", "dev_mlp", "dev_risk", "iwcv", "weighted_risk"]


def weighted_risk(losses: np.ndarray, weights: np.ndarray) -> float:
    """R = Σ w l / Σ w, self-normalised importance weighting: the scale of the weights counts for nothing.

    Where the domains are apart, the weights of all source rows are small (means of 0.05 to 0.16 are seen), and
    mean(w l) would be smallest for the candidate that keeps the domains furthest apart.

    >>> weighted_risk(np.array([0.0, 1.0]), np.array([0.01, 0.03]))
    0.75
    """
    return float((weights * losses).sum() / weights.sum())


def dev_risk(losses: np.ndarray, weights: np.ndarray) -> float:
    """R = mean(w l) + η mean(w) − η with the control variate η = −Cov(w l, w)/Var(w).

    E[w] = 1, so the correction has mean zero, and of all such it leaves the least variance. Equal weights need none.

    The weights are not divided by their mean first: mean(w) would be 1, the correction zero, and R that of
    `weighted_risk`. The correction itself makes up for a mean other than 1: R is the regression line of w l over w,
    read at w = 1. A constant loss is therefore its own risk, but with weights far below 1 the line is read far from
    its points, and R may be anything, also negative.

    >>> dev_risk(np.full(4, 0.25), np.array([0.1, 3.0, 0.5, 0.9]))  # a constant loss is its own risk
    0.25
    """
    weighted = weights * losses
    variance = float(weights.var(ddof=1)) if len(weights) > 1 else 0.0
    if variance <= 1e-12 * float(weights.mean()) ** 2:  # equal but for rounding
        return float(weighted.mean())
    eta = -float(np.cov(weighted, weights, ddof=1)[0, 1]) / variance
    return float(weighted.mean() + eta * weights.mean() - eta)


def _losses(p: Predictions) -> np.ndarray:
    """Cross-entropy of the held-out source rows."""
    found, start = [], 0
    for block in blocks(p.logits_v):
        labels = p.labels_v[start : start + len(block)]
        found.append(-log_softmax(block)[np.arange(len(block)), labels])
        start += len(block)
    return np.concatenate(found)


@validator(
    "iwcv", higher=False, span="0 …", needs_holdout=True,
    fails="a few heavy weights decide where the domains hardly overlap",
)  # fmt: skip
def iwcv(p: Predictions) -> float:
    """Importance-weighted validation: Σ w l / Σ w over held-out source rows (Sugiyama et al., 2007)."""
    return weighted_risk(_losses(p), p.importance)


@validator(
    "dev", higher=False, span="any number, near the target risk", needs_holdout=True,
    fails="where the domains hardly overlap few rows count (see its effective sample size); may be negative",
)  # fmt: skip
def dev(p: Predictions) -> float:
    """Deep embedded validation: iwcv with a control variate; a linear domain classifier gives the weights."""
    return dev_risk(_losses(p), p.importance)


@validator(
    "dev-mlp", higher=False, span="any number, near the target risk", needs_holdout=True, slow=True,
    fails="as dev; its more confident classifier gives heavier weights, and trains nine networks a candidate",
)  # fmt: skip
def dev_mlp(p: Predictions) -> float:
    """DEV with its published domain classifier: two hidden layers, the best of nine weight decays."""
    weights = importance_weights(p.features_s, p.features_t, p.features_v, classifier="mlp", splits=1)
    return dev_risk(_losses(p), weights)
