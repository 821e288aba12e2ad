"""Deep embedded validation: the target risk from labelled source rows, weighted by how target-like they are.

Shapes: n held-out source rows with losses l (n,) and importance weights w (n,). (You et al., ICML 2019.)
"""

import numpy as np

from tsadapt.selection.importance import importance_weights
from tsadapt.selection.predictions import Predictions, log_softmax
from tsadapt.selection.validators import validator

__all__ = ["dev", "dev_mlp", "dev_risk", "iwcv"]


def dev_risk(losses: np.ndarray, weights: np.ndarray) -> float:
    """R = mean(w l) + η mean(w) − η with the control variate η = −Cov(w l, w)/Var(w).

    E[w] = 1, so the correction has mean zero, and of all such it leaves the least variance. Equal weights need none.

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
    found: np.ndarray = -log_softmax(p.logits_v)[np.arange(len(p.labels_v)), p.labels_v]
    return found


@validator(
    "iwcv", higher=False, span="0 …", needs_holdout=True,
    fails="a few heavy weights decide where the domains hardly overlap",
)  # fmt: skip
def iwcv(p: Predictions) -> float:
    """Importance-weighted validation: mean(w l) over held-out source rows (Sugiyama et al., 2007)."""
    return float((p.importance * _losses(p)).mean())


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
