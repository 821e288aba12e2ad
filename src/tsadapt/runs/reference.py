"""What little it takes to tell the source's classes apart: the least that a trained network should reach there.

Shapes: N rows of D numbers (inputs or features), C classes.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tsadapt.data.types import Domain, match_labels
from tsadapt.runs.model import Predicted

__all__ = ["Reference", "source_reference"]

MOST_ROWS = 20_000
"""Rows that class means are made of."""

MOST_JUDGED = 2_000
"""Rows that are classified by them."""

FAR = 0.7
"""A source accuracy below this part of the reference says that training failed: sound runs reach it, or nearly."""


@dataclass(frozen=True)
class Reference:
    """An accuracy on source rows, what of the rows it looks at, and how many rows it was counted on."""

    accuracy: float
    of: str
    rows: int

    def far_above(self, accuracy: float) -> bool:
        """Whether an accuracy is so far below that training failed, beyond what few rows do by chance."""
        return accuracy < FAR * (self.accuracy - 1 / math.sqrt(max(self.rows, 1)))


def source_reference(source: Domain, test: Domain, on_test: Predicted, classes: tuple[str, ...]) -> Reference | None:
    """The better of two: the nearest class mean of the source's inputs, and of its features; None without enough rows.

    Inputs do not depend on training, features are there for images too that are not in memory. No target is needed.
    """
    labels = match_labels(test, classes)[0][on_test.rows]
    known = labels >= 0
    parts = {"features": (torch.from_numpy(on_test.features)[known], labels[known])}
    if isinstance(source.x, Tensor) and source.y is not None:
        parts["inputs"] = (source.x, source.y)
    found = [
        Reference(accuracy, of, min(len(x) - len(x) // 2, MOST_JUDGED))
        for of, (x, y) in parts.items()
        if not math.isnan(accuracy := nearest_mean_accuracy(x, y, len(classes)))
    ]
    return max(found, key=lambda reference: reference.accuracy, default=None)


def nearest_mean_accuracy(x: Tensor, labels: Tensor, classes: int) -> float:
    """Accuracy of the nearest class mean on rows that the means are not made of; NaN for fewer than four rows.

        argmin_c ‖(f − μ_c)/σ‖,    μ_c (D,) from one half of the rows, f of the other half, σ (D,) their deviation

    >>> y = torch.arange(100) % 4
    >>> nearest_mean_accuracy(torch.eye(4)[y], y, 4)
    1.0
    """
    rows = torch.from_numpy(np.random.default_rng(0).permutation(len(x))[:MOST_ROWS])
    if len(rows) < 4:
        return float("nan")
    x, labels = x[rows].flatten(1), labels[rows]
    x = x if x.dtype == torch.float64 else x.float()
    half = len(rows) // 2
    deviation, mean = torch.std_mean(x[:half], 0)
    x = ((x - mean) / torch.where(deviation > 0, deviation, 1.0)).float()
    count = torch.bincount(labels[:half], minlength=classes)
    means = x.new_zeros(classes, x.shape[1]).index_add_(0, labels[:half], x[:half]) / count.clamp_min(1)[:, None]
    means, known = means[count > 0], torch.arange(classes)[count > 0]
    judged = slice(half, half + MOST_JUDGED)
    # ‖f − μ‖² without ‖f‖², which is the same for all classes.
    guess = known[(means.square().sum(1) - 2 * x[judged] @ means.T).argmin(1)]
    return float((guess == labels[judged]).double().mean())
