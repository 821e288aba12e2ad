"""What validators score: arrays of a trained network. They have no field for target labels.

Shapes: n_s, n_v and n_t rows of the source (train), of its held-out part, and of the target; K features, C classes.
"""

import io
import zipfile
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np

from tsadapt.errors import UserError
from tsadapt.selection.importance import importance_weights

__all__ = ["Mixed", "Predictions", "log_softmax", "softmax"]


@dataclass(frozen=True)
class Mixed:
    """Target rows mixed in pairs, λ x_a + (1 − λ) x_b: the rows a and b (P,), and the logits (P, C) of the mixtures."""

    a: np.ndarray
    b: np.ndarray
    logits: np.ndarray


@dataclass(frozen=True)
class Predictions:
    """Features and logits of one candidate: a network at some step.

    Without a held-out part, n_v = 0. `weight` (H, C, D) are the rows of the heads' last layers; `mixed` is there if
    mixtures were forwarded.
    """

    features_s: np.ndarray
    features_v: np.ndarray
    logits_v: np.ndarray
    labels_v: np.ndarray
    features_t: np.ndarray
    logits_t: np.ndarray
    weight: np.ndarray | None = None
    mixed: Mixed | None = None

    @property
    def classes(self) -> int:
        """C."""
        return int(self.logits_t.shape[1])

    @property
    def probabilities_t(self) -> np.ndarray:
        """Softmax of the target's logits, (n_t, C)."""
        return softmax(self.logits_t)

    @property
    def guess_t(self) -> np.ndarray:
        """The predicted class of every target row."""
        guess: np.ndarray = self.logits_t.argmax(1)
        return guess

    @property
    def finite(self) -> bool:
        """Whether all numbers are."""
        arrays = (self.features_s, self.features_v, self.logits_v, self.features_t, self.logits_t)
        return all(bool(np.isfinite(array).all()) for array in arrays)

    @cached_property
    def importance(self) -> np.ndarray:
        """Importance weights (n_v,) of the held-out source rows: how target-like they are."""
        return importance_weights(self.features_s, self.features_t, self.features_v)

    def packed(self) -> bytes:
        """As the bytes of an .npz."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "mixed"}
        if self.mixed is not None:
            arrays |= {f"mixed_{name}": value for name, value in vars(self.mixed).items()}
        buffer = io.BytesIO()
        np.savez(buffer, **{name: value for name, value in arrays.items() if value is not None})
        return buffer.getvalue()

    @classmethod
    def read(cls, path: Path) -> "Predictions":
        """From an .npz that `packed` made."""
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                arrays = dict(file)
            mixed = {name.removeprefix("mixed_"): arrays.pop(name) for name in [*arrays] if name.startswith("mixed_")}
            return cls(**arrays, mixed=Mixed(**mixed) if mixed else None)
        except (OSError, ValueError, TypeError, zipfile.BadZipFile) as error:
            raise UserError(f"{path} cannot be read as predictions of a run: {error}.") from error


def softmax(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis, in float64."""
    p: np.ndarray = np.exp(log_softmax(logits))
    return p


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log softmax over the last axis, in float64.

    >>> log_softmax(np.array([1e4, 0.0])).tolist()
    [0.0, -10000.0]
    """
    z = logits.astype(np.float64)
    z = z - z.max(-1, keepdims=True)
    log_p: np.ndarray = z - np.log(np.exp(z).sum(-1, keepdims=True))
    return log_p
