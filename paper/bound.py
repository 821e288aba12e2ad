"""The ingredients of the paper's bound on the target error (Section 3.4), measured on a finished run.

ε_t(h) ≤ ε_s(h) + ½ d(S, T) + λ*,    λ* = min_h ε_s(h) + ε_t(h)
"""

from pathlib import Path
from typing import Any

import numpy as np

from paper.run_features import Look, look_at

__all__ = ["bound_ingredients", "joint_error"]

MOST_ROWS = 4000


def bound_ingredients(run: Path) -> dict[str, Any]:
    """λ* of the run's features, in percent, under a name that says that target labels made it."""
    return {"oracle_joint_error": round(100 * joint_error(look_at(run, MOST_ROWS)), 2)}


def joint_error(look: Look, seed: int = 0) -> float:
    """ε_s(h*) + ε_t(h*) of a linear classifier h* on the features, fitted with the labels of both domains.

    It learns from half of each domain, which count alike however many rows they have, and errs on the other half.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(200) % 2
    >>> f = 4 * y[:, None] + rng.normal(size=(200, 1))
    >>> joint_error(Look(f, y, f, y)) < 0.2, joint_error(Look(f, y, f, 1 - y)) > 0.8  # labels that contradict
    (True, True)
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng, learn, judge = np.random.default_rng(seed), [], []
    for f, y in ((look.f_s, look.y_s), (look.f_t, look.y_t)):
        known = np.flatnonzero(y >= 0)
        order = rng.permutation(known)
        half = len(order) // 2
        learn.append((f[order[:half]], y[order[:half]]))
        judge.append((f[order[half:]], y[order[half:]]))
    weights = np.concatenate([np.full(len(y), 0.5 / len(y)) for _, y in learn])
    weights *= len(weights)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    x, y = (np.concatenate(parts) for parts in zip(*learn, strict=True))
    model.fit(x, y, logisticregression__sample_weight=weights)
    return float(sum(1 - model.score(f, y) for f, y in judge))
