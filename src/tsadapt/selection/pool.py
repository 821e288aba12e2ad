"""Validators that compare the candidates of a pool with each other."""

from collections.abc import Sequence

import numpy as np

from tsadapt.selection.logits import row_blocks, softmax
from tsadapt.selection.mixval import mixval_accuracies
from tsadapt.selection.predictions import Predictions
from tsadapt.selection.validators import pool_validator, ranks

__all__ = ["ensv", "mixval"]


@pool_validator("ensv", higher=True, span="0 … 1", fails="the majority decides: a pool of mostly bad candidates agrees")
def ensv(pool: Sequence[Predictions]) -> list[float]:
    """Agreement with the ensemble: the share of rows predicted as the pool's mean does (Hu et al., 2023)."""
    rows = {len(p.logits_t) for p in pool}
    if len(rows) > 1:
        raise ValueError(f"candidates of one pool predict the same target rows, found {sorted(rows)} rows")
    found = []
    for block in row_blocks(len(pool[0].logits_t), pool[0].classes):
        total = sum(softmax(np.asarray(p.logits_t[block])) for p in pool)
        found.append(np.argmax(total, 1))
    together = np.concatenate(found)
    return [float((p.guess_t == together).mean()) for p in pool]


@pool_validator("mixval", higher=True, span="0 … 1", fails="favours smoothness between rows, which collapse has too")
def mixval(pool: Sequence[Predictions]) -> list[float]:
    """How well predictions hold between target rows: mean rank by mixtures of one class and of two (Hu et al., 2023).

    1 for the best candidate of the pool in both, 0 for the worst in both.
    """
    found = np.array([(np.nan,) * 2 if p.mixed is None else mixval_accuracies(p.guess_t, p.mixed) for p in pool])
    if len(pool) == 1:
        return [float(np.nanmean(found))] if not np.isnan(found).all() else [float("nan")]
    missing = np.isnan(found).all(1)
    goodness = np.where(np.isnan(found), -np.inf, found)
    mean = np.stack([ranks(goodness[:, part]) for part in range(2)]).mean(0)
    scaled = (len(pool) - mean) / (len(pool) - 1)
    return [float("nan") if none else float(value) for none, value in zip(missing, scaled, strict=True)]
