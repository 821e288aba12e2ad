"""What a trained network does on a domain. Target labels exist here and after, and nowhere before.

Shapes: N rows, K features, C classes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tsadapt.data.image_loader import grouped, image_pass, workers_here
from tsadapt.data.images import Images
from tsadapt.data.transforms import evaluation_transform
from tsadapt.data.types import Domain, Unreadable, match_labels
from tsadapt.errors import UserError
from tsadapt.models.classifier import Classifier
from tsadapt.models.preprocessing import Eyes
from tsadapt.progress import StepProgress
from tsadapt.training.runtime import autocast

__all__ = ["Predicted", "calibration_error", "predict_rows", "score"]

ROWS_AT_ONCE = 512
IMAGES_AT_ONCE = 16


@dataclass(frozen=True)
class Predicted:
    """Features (N, K) and logits (N, C) of the rows of a domain, as float32 arrays.

    `rows` are the numbers of the rows in the domain, and `unreadable` those that are left out, with the reason.
    """

    features: np.ndarray
    logits: np.ndarray
    rows: list[int]
    unreadable: Unreadable

    @property
    def probabilities(self) -> np.ndarray:
        """softmax(logits), (N, C)."""
        return torch.from_numpy(self.logits).double().softmax(1).numpy()


def predict_rows(
    model: Classifier,
    domain: Domain,
    device: torch.device,
    eyes: Eyes | None = None,
    workers: int | None = None,
    quiet: bool = True,
) -> Predicted:
    """Features and logits of a domain that was made ready, in evaluation mode and float32.

    Images are framed by `eyes`; over ten crops of an image, features and logits are averaged.
    """
    model.eval()
    features, logits, rows = list[Tensor](), list[Tensor](), list[int]()
    unreadable: Unreadable = {}
    if isinstance(domain.x, Images):
        assert eyes is not None
        view, at_least = evaluation_transform(eyes.framing, eyes.ten_crop), 2 * eyes.framing.resize
        groups, count = grouped(range(len(domain)), IMAGES_AT_ONCE), workers_here(workers, len(domain))
        with StepProgress(len(domain), 0, quiet, "image") as progress:
            for some in image_pass(domain.x, groups, view, at_least, count):
                if some.rows:
                    f, z = _forward(model, some.x.flatten(0, -4), device)
                    features.append(f.view(len(some.rows), -1, f.shape[1]).mean(1))
                    logits.append(z.view(len(some.rows), -1, z.shape[1]).mean(1))
                rows += some.rows
                unreadable |= some.unreadable
                progress.advance(progress.done + len(some.rows) + len(some.unreadable))
        if not rows:
            raise UserError(f"None of the {len(domain)} images of {domain.name} can be read.")
    else:
        rows = [*range(len(domain))]
        for x in torch.split(domain.x, ROWS_AT_ONCE):
            f, z = _forward(model, x, device)
            features.append(f)
            logits.append(z)
    return Predicted(torch.cat(features).numpy(), torch.cat(logits).numpy(), rows, unreadable)


@torch.no_grad()
def _forward(model: Classifier, x: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    with autocast(device, "fp32"):
        f, z = model(x.to(device))
    return f.float().cpu(), z.float().cpu()


def score(predictions: Predicted, domain: Domain, classes: tuple[str, ...]) -> dict[str, Any]:
    """What can be said of predictions: shares of the classes always, accuracies where the domain has labels.

    A row whose class the network does not know counts as an error, and its class is named.
    """
    domain = domain.keep(predictions.rows) if predictions.unreadable else domain
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
