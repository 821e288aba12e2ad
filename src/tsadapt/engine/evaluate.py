"""What a trained network does on a domain. Target labels exist here and after, and nowhere before.

Shapes: N rows, K features, C classes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tsadapt.data.types import Domain, match_labels
from tsadapt.engine.runtime import autocast
from tsadapt.models.classifier import Classifier

__all__ = ["Predictions", "calibration_error", "predict_rows", "score"]

ROWS_AT_ONCE = 512


@dataclass(frozen=True)
class Predictions:
    """Features (N, K) and logits (N, C) of all rows of a domain, as float32 arrays."""

    features: np.ndarray
    logits: np.ndarray

    @property
    def probabilities(self) -> np.ndarray:
        """softmax(logits), (N, C)."""
        return torch.from_numpy(self.logits).double().softmax(1).numpy()


@torch.no_grad()
def predict_rows(model: Classifier, x: Tensor, device: torch.device) -> Predictions:
    """Features and logits of raw rows, in evaluation mode and float32."""
    model.eval()
    features, logits = [], []
    for rows in torch.split(x, ROWS_AT_ONCE):
        with autocast(device, "fp32"):
            f, z = model(rows.to(device))
        features.append(f.float().cpu())
        logits.append(z.float().cpu())
    return Predictions(torch.cat(features).numpy(), torch.cat(logits).numpy())


def score(predictions: Predictions, domain: Domain, classes: tuple[str, ...]) -> dict[str, Any]:
    """What can be said of predictions: shares of the classes always, accuracies where the domain has labels.

    A row whose class the network does not know counts as an error, and its class is named.
    """
    guess = predictions.logits.argmax(1)
    said: dict[str, Any] = {
        "data": domain.name,
        "split": domain.split,
        "rows": len(domain),
        "predicted_share": dict(
            zip(classes, (np.bincount(guess, minlength=len(classes)) / len(guess)).tolist(), strict=True)
        ),
    }
    if domain.y is None:
        return said
    labels, strange = match_labels(domain, classes)
    y = labels.numpy()
    confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(confusion, (y[y >= 0], guess[y >= 0]), 1)
    totals = confusion.sum(1)
    per_class = {c: float(confusion[i, i] / totals[i]) for i, c in enumerate(classes) if totals[i]}
    # A class the network has never heard of is a class all the same, with nothing right.
    mean_class = sum(per_class.values()) / max(len(per_class) + len(strange), 1)
    said |= {
        "accuracy": float((guess == y).mean()),
        "mean_class_accuracy": mean_class,
        "per_class_accuracy": per_class,
        "confusion": confusion.tolist(),
        "calibration_error": calibration_error(predictions.probabilities, y),
        "unknown_classes": strange,
        "unknown_rows": int((y < 0).sum()),
    }
    return said


def calibration_error(probabilities: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error: |accuracy − confidence|, averaged over equal bins of confidence by their rows.

    >>> calibration_error(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1]))
    0.5
    """
    confidence = probabilities.max(1)
    right = probabilities.argmax(1) == labels
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    error = sum(abs(right[place == b].sum() - confidence[place == b].sum()) for b in range(bins))
    return float(error / len(labels))
