"""Two interleaving moons, and a rotated copy: the paper's toy problem."""

import math

import numpy as np

from tsadapt.data.rows import as_rows
from tsadapt.data.types import Domain
from tsadapt.errors import UserError

__all__ = ["MOONS", "Moons", "load_moons", "rotated_moons"]

MOONS = ("source", "target")

Moons = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""x_s (n, 2) float32, y_s (n,) int64, x_t (n, 2), y_t (n,)."""


def rotated_moons(n: int = 300, noise: float = 0.1, angle: float = 30.0, seed: int = 0) -> Moons:
    """Source moons, and target moons rotated by `angle` degrees about the source's mean.

    The target is a separate draw, so no target row is a rotated source row.

    >>> x_s, y_s, x_t, y_t = rotated_moons(n=100, seed=1)
    >>> x_s.shape, x_t.dtype, int(y_s.sum()), int(y_t.sum())
    ((100, 2), dtype('float32'), 50, 50)
    """
    from sklearn.datasets import make_moons

    x_s, y_s = make_moons(n, noise=noise, random_state=2 * seed)
    x_t, y_t = make_moons(n, noise=noise, random_state=2 * seed + 1)
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    centre = x_s.mean(0)
    x_t = (x_t - centre) @ np.array([[cos, sin], [-sin, cos]]) + centre
    return x_s.astype(np.float32), y_s.astype(np.int64), x_t.astype(np.float32), y_t.astype(np.int64)


def load_moons(name: str) -> Domain:
    """The source or target moons; source-7 and target-7 use seed 7.

    >>> len(load_moons("source")), load_moons("target-7").classes
    (300, ('0', '1'))
    """
    role, _, number = name.partition("-")
    if role not in MOONS or not (number or "0").isdecimal():
        raise UserError(
            f"Unknown dataset 'moons:{name}'. Expected moons:source or moons:target, or with a seed: moons:source-7."
        )
    x_s, y_s, x_t, y_t = rotated_moons(seed=int(number or 0))
    x, y = (x_s, y_s) if role == "source" else (x_t, y_t)
    return Domain(f"moons:{name}", as_rows(x), as_rows(y), ("0", "1"))
