"""What validators score: arrays of a trained network. They have no field for target labels.

Shapes: n_s, n_v and n_t rows of the source (train), of its held-out part, and of the target; K features, C classes.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tsadapt.data.reading import oddity, reading
from tsadapt.selection.importance import importance_weights
from tsadapt.selection.logits import FactoredLogits, Logits, blocks, guesses, softmax

__all__ = ["Mixed", "Predictions"]


FACTOR = "-factor-"
"""Between the name of logits and that of one of their factors, in a file."""


@dataclass(frozen=True)
class Mixed:
    """Target rows mixed in pairs, λ x_a + (1 − λ) x_b: the rows a and b (P,), and the logits (P, C) of the mixtures."""

    a: np.ndarray
    b: np.ndarray
    logits: Logits


@dataclass(frozen=True)
class Predictions:
    """Features and logits of one candidate: a network at some step.

    Logits of many rows and classes are kept as factors. Without a held-out part, n_v = 0. `weight` (H, C, D) are the
    rows of the heads' last layers; `mixed` is there if mixtures were forwarded.
    """

    features_s: np.ndarray
    features_v: np.ndarray
    logits_v: Logits
    labels_v: np.ndarray
    features_t: np.ndarray
    logits_t: Logits
    weight: np.ndarray | None = None
    mixed: Mixed | None = None

    @property
    def classes(self) -> int:
        """C."""
        return int(self.logits_t.shape[1])

    @property
    def probabilities_t(self) -> np.ndarray:
        """Softmax of the target's logits, (n_t, C), all at once."""
        return softmax(np.asarray(self.logits_t))

    def probability_blocks(self) -> Iterator[np.ndarray]:
        """The same, some rows at a time."""
        return map(softmax, blocks(self.logits_t))

    @property
    def confidence_t(self) -> np.ndarray:
        """The largest probability of every target row."""
        return np.concatenate([p.max(1) for p in self.probability_blocks()])

    @property
    def guess_t(self) -> np.ndarray:
        """The predicted class of every target row."""
        return guesses(self.logits_t)

    @property
    def finite(self) -> bool:
        """Whether all numbers are."""
        arrays = (self.features_s, self.features_v, self.logits_v, self.features_t, self.logits_t)
        return all(a.finite if isinstance(a, FactoredLogits) else bool(np.isfinite(a).all()) for a in arrays)

    @cached_property
    def importance(self) -> np.ndarray:
        """Importance weights (n_v,) of the held-out source rows: how target-like they are."""
        return importance_weights(self.features_s, self.features_t, self.features_v)

    def packed(self) -> bytes:
        """As the bytes of an .npz."""
        parts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "mixed"}
        if self.mixed is not None:
            parts |= {f"mixed_{name}": value for name, value in vars(self.mixed).items()}
        arrays: dict[str, np.ndarray] = {}
        for name, part in parts.items():
            if isinstance(part, FactoredLogits):
                arrays |= {f"{name}{FACTOR}{factor}": array for factor, array in part.factors.items()}
            elif part is not None:
                arrays[name] = part
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()

    @classmethod
    def read(cls, path: Path) -> "Predictions":
        """From an .npz that `packed` made."""
        with reading(str(path), "predictions that fit wrote"):
            if what := oddity(path):  # a pipe would be waited for
                raise ValueError(f"it is {what}")
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                arrays = _with_factors(dict(file))
            mixed = {name.removeprefix("mixed_"): arrays.pop(name) for name in [*arrays] if name.startswith("mixed_")}
            return cls(**arrays, mixed=Mixed(**mixed) if mixed else None)


def _with_factors(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The arrays of a file, with the factors of logits put together."""
    found: dict[str, Any] = {name: array for name, array in arrays.items() if FACTOR not in name}
    for whole in dict.fromkeys(name.partition(FACTOR)[0] for name in arrays if FACTOR in name):
        found[whole] = FactoredLogits(**{f.name: arrays[f"{whole}{FACTOR}{f.name}"] for f in fields(FactoredLogits)})
    return found
