"""What predictions are worth. Target labels exist here and after, and nowhere before.

Shapes: N rows, C classes.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from tsadapt.data.types import Domain, match_labels
from tsadapt.errors import UserError
from tsadapt.runs.model import Predicted
from tsadapt.trust.interval import wilson

__all__ = ["MOST_CLASSES", "calibration_error", "score", "score_rows", "without_rows"]

MOST_CLASSES = 500
"""Classes up to which the confusion matrix is a table: of 10,000 it would have a hundred million numbers."""


def score(predictions: Predicted, domain: Domain, classes: tuple[str, ...]) -> dict[str, Any]:
    """Metrics of predictions: shares of the classes always, accuracies where the domain has labels.

    A row whose class the network does not know counts as an error, and its class is named.
    """
    domain = domain.keep(predictions.rows) if predictions.unreadable else domain
    guess = predictions.guess
    metrics: dict[str, Any] = {
        "data": domain.name,
        "split": domain.split,
        "rows": len(domain),
        "predicted_share": dict(
            zip(classes, (np.bincount(guess, minlength=len(classes)) / len(guess)).tolist(), strict=True)
        ),
    }
    if domain.y is None:
        return metrics
    labels, strange = match_labels(domain, classes)
    y = labels.numpy()
    known = y >= 0
    totals, right = (np.bincount(y[rows], minlength=len(classes)) for rows in (known, known & (guess == y)))
    per_class = {c: float(right[i] / totals[i]) for i, c in enumerate(classes) if totals[i]}
    # A class the network has never heard of is a class all the same, with nothing right.
    mean_class = sum(per_class.values()) / max(len(per_class) + len(strange), 1)
    metrics |= {
        "accuracy": float((guess == y).mean()),
        "mean_class_accuracy": mean_class,
        "per_class_accuracy": per_class,
        "confusion": _confusion(y[known], guess[known], len(classes)),
        "calibration_error": _calibration(predictions, y),
        "unknown_classes": strange,
        "unknown_rows": int((y < 0).sum()),
    }
    return metrics


def score_rows(predictions: Predicted, labels: np.ndarray) -> dict[str, float]:
    """The accuracy on the rows whose label is known (not −1), with Wilson's 95 % interval."""
    y = labels[predictions.rows]
    known = y >= 0
    found = wilson(int((predictions.guess[known] == y[known]).sum()), int(known.sum()))
    return {"accuracy": found.value, "low": found.low, "high": found.high}


def without_rows(predictions: Predicted, domain: Domain, rows: np.ndarray) -> tuple[Predicted, Domain]:
    """Predictions and domain without some rows of the domain; an unreadable row stays one."""
    kept = np.setdiff1d(np.arange(len(domain)), rows)
    if not len(kept):
        raise UserError(
            f"All rows of {domain.name} are trained on with their labels: there is nothing to measure with."
        )
    place = {int(row): i for i, row in enumerate(kept)}
    mine = [i for i, row in enumerate(predictions.rows) if row in place]
    found = replace(
        predictions,
        features=predictions.features[mine],
        logits=predictions.logits[np.array(mine)],
        rows=[place[predictions.rows[i]] for i in mine],
        unreadable={place[row]: why for row, why in predictions.unreadable.items() if row in place},
    )
    return found, domain.keep(kept.tolist())


def _confusion(labels: np.ndarray, guess: np.ndarray, classes: int) -> list[list[int]] | np.ndarray:
    """How many rows of each class (first index) are predicted as each class (second).

    Of more than `MOST_CLASSES`, only the pairs that occur, as an array of (class, predicted class, rows).
    """
    if classes > MOST_CLASSES:
        pairs, rows = np.unique(labels * classes + guess, return_counts=True)
        return np.stack([pairs // classes, pairs % classes, rows], 1)
    table = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(table, (labels, guess), 1)
    found: list[list[int]] = table.tolist()
    return found


def _calibration(predictions: Predicted, labels: np.ndarray) -> float:
    blocks = [(p.max(1), p.argmax(1)) for p in predictions.probability_blocks()]
    confidence, guess = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return _calibration_error(confidence, guess == labels)


def calibration_error(probabilities: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error: |accuracy − confidence|, averaged over equal bins of confidence by their rows.

    >>> calibration_error(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1]))
    0.5
    """
    return _calibration_error(probabilities.max(1), probabilities.argmax(1) == labels, bins)


def _calibration_error(confidence: np.ndarray, right: np.ndarray, bins: int = 15) -> float:
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    error = sum(abs(right[bin_of == b].sum() - confidence[bin_of == b].sum()) for b in range(bins))
    return float(error / len(right))
