"""What predictions are worth. Target labels exist here and after, and nowhere before.

Shapes: N rows, C classes.
"""

from typing import Any

import numpy as np

from tsadapt.data.types import Domain, match_labels
from tsadapt.runs.model import Predicted

__all__ = ["calibration_error", "score"]


def score(predictions: Predicted, domain: Domain, classes: tuple[str, ...]) -> dict[str, Any]:
    """Metrics of predictions: shares of the classes always, accuracies where the domain has labels.

    A row whose class the network does not know counts as an error, and its class is named.
    """
    domain = domain.keep(predictions.rows) if predictions.unreadable else domain
    guess = predictions.logits.argmax(1)
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
    confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(confusion, (y[y >= 0], guess[y >= 0]), 1)
    totals = confusion.sum(1)
    per_class = {c: float(confusion[i, i] / totals[i]) for i, c in enumerate(classes) if totals[i]}
    # A class the network has never heard of is a class all the same, with nothing right.
    mean_class = sum(per_class.values()) / max(len(per_class) + len(strange), 1)
    metrics |= {
        "accuracy": float((guess == y).mean()),
        "mean_class_accuracy": mean_class,
        "per_class_accuracy": per_class,
        "confusion": confusion.tolist(),
        "calibration_error": calibration_error(predictions.probabilities, y),
        "unknown_classes": strange,
        "unknown_rows": int((y < 0).sum()),
    }
    return metrics


def calibration_error(probabilities: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error: |accuracy − confidence|, averaged over equal bins of confidence by their rows.

    >>> calibration_error(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1]))
    0.5
    """
    confidence = probabilities.max(1)
    right = probabilities.argmax(1) == labels
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    error = sum(abs(right[bin_of == b].sum() - confidence[bin_of == b].sum()) for b in range(bins))
    return float(error / len(labels))
