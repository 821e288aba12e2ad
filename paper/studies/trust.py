"""How good the estimates of `tsadapt adapt` are: measured by target labels on every task here (oracle).

Constants of `tsadapt.trust` are fixed on PACS and the embedded digits. Office-31 and Office-Caltech-10 take no part in
choosing; they only measure.
"""

from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from paper.jobs import Job, Workspace
from paper.rows import Row
from paper.studies.trust_runs import DOMINATED, LACKING, PRIOR_OF, Pool, pool_configs, train_pool
from tsadapt.files import number
from tsadapt.sweep.choice import Candidate, reference_among
from tsadapt.trust import Interval, Trust, assess, calibration_error, label_shares

__all__ = ["CHANGED", "CHANGED_COLUMNS", "measure_trust", "settings_of_trust"]

CHANGED_COLUMNS = ("PACS A → P", "PACS C → A", "PACS P → C", "UCI → MNIST-5k", "Caltech A → C", "Caltech C → A")
"""Tasks whose targets have enough rows of each class to change their shares."""

CHANGED = [Row(kind, {}, columns=CHANGED_COLUMNS) for kind in (DOMINATED, LACKING)]

FORMULAS = 4
"""Raised when a formula or a constant of `tsadapt.trust` changes: tasks are then measured anew, not trained. 2: class
shares take the evidence of adapted members in. 3: they ask whether each class is there. 4: the preset strong is
preferred."""


def settings_of_trust(job: Job, quick: bool) -> dict[str, Any]:
    """What the numbers depend on beside the config of the task."""
    return {"formulas": FORMULAS, "candidates": {name: config.hash() for name, config in pool_configs(job).items()}}


def measure_trust(job: Job, space: Workspace) -> dict[str, Any]:
    """Train the portfolio, choose, assess, and hold it all against the target's labels (oracle)."""
    pool = train_pool(job, space.folder)
    trust = assessed(pool)
    chosen = pool.candidates[pool.choice.chosen].predictions
    right = trust.guess == pool.labels
    true = label_shares(pool.labels, len(pool.classes))
    found: dict[str, Any] = {
        "chosen": pool.names[pool.choice.chosen],
        "rows": len(right),
        "accuracy": round(100 * float(right.mean()), 2),
        "accuracies": {n: _percent(c) for n, c in zip(pool.names, pool.candidates, strict=True)},
        "estimate": _interval(trust.estimate),
        "holds": bool(right.mean() in trust.estimate),
        "parts": {name: round(100 * value, 2) for name, value in trust.parts.items()},
        "auroc": _auroc(trust.probability, right),
        "auroc_softmax": _auroc(chosen.confidence_t, right),
        "calibration_error": round(100 * calibration_error(trust.probability, right), 2),
        "calibration_error_softmax": round(100 * calibration_error(chosen.confidence_t, right), 2),
        "doubtful": {
            "share": round(100 * float(trust.doubtful.mean()), 2),
            "wrong": _share(~right[trust.doubtful]),
            "wrong_elsewhere": _share(~right[~trust.doubtful]),
        },
        "shares": _shares(pool, trust, true),
    }
    if pool.priored:
        found["priors"] = {
            name: {prior: _percent(one) for (n, prior), one in pool.priored.items() if n == name} for name in PRIOR_OF
        }
    return found


def assessed(pool: Pool) -> Trust:
    """As `tsadapt adapt` assesses: collapsed candidates have no say."""
    members = [i for i in range(len(pool.candidates)) if i not in pool.choice.out]
    reference = reference_among(pool.candidates)
    return assess(
        [pool.candidates[i].predictions for i in members],
        members.index(pool.choice.chosen),
        pool.classes,
        again=[] if pool.twin is None else [pool.twin.predictions],
        reference=None if reference not in members else members.index(reference),
        source_shares=label_shares(pool.source_labels, len(pool.classes)),
    )


def _shares(pool: Pool, trust: Trust, true: np.ndarray) -> dict[str, Any]:
    """How far the class shares are from the true ones: half the sum of the differences, %, and what the notes say."""
    estimated = np.array([share.value for share in trust.class_shares.values()])
    held = [bool(t in share) for t, share in zip(true, trust.class_shares.values(), strict=True)]
    source = label_shares(pool.source_labels, len(pool.classes))
    most = int(true.argmax())
    return {
        "distance": _distance(estimated, true),
        "distance_of_source": _distance(source, true),
        "distance_of_predictions": _distance(label_shares(trust.guess, len(true)), true),
        "hold": _share(np.array(held)),
        "largest": {"class": pool.classes[most], "true": round(100 * float(true[most]), 1),
                    "estimated": round(100 * float(estimated[most]), 1)},
        "missing": [name for name, share in zip(pool.classes, true, strict=True) if not share],
        "notes": list(trust.notes),
    }  # fmt: skip


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    return round(50 * float(np.abs(a - b).sum()), 2)


def _percent(one: Candidate) -> float:
    assert one.oracle_accuracy is not None
    return round(100 * one.oracle_accuracy, 2)


def _interval(found: Interval) -> dict[str, float]:
    return {name: round(100 * value, 2) for name, value in vars(found).items()}


def _share(mask: np.ndarray) -> float | None:
    return number(round(100 * float(mask.mean()), 2)) if len(mask) else None


def _auroc(score: np.ndarray, right: np.ndarray) -> float | None:
    return None if right.all() or not right.any() else round(float(roc_auc_score(right, score)), 4)
