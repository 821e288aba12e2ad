"""A number with the interval that it is expected to lie in."""

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["Interval", "interval_of", "wilson"]


@dataclass(frozen=True)
class Interval:
    """A share of rows, and the interval [low, high] around it."""

    value: float
    low: float
    high: float

    def __contains__(self, truth: float) -> bool:
        return self.low <= truth <= self.high


def interval_of(value: float, draws: np.ndarray, level: float = 0.9) -> Interval:
    """The middle `level` of bootstrap draws, which the value is always part of.

    >>> interval_of(0.5, np.linspace(0, 1, 101), level=0.5)
    Interval(value=0.5, low=0.25, high=0.75)
    """
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(value), float(min(low, value)), float(max(high, value)))


def wilson(right: int, rows: int) -> Interval:
    """The share of right rows with Wilson's interval of 95 %.

    p̃ ± z √(p(1−p)/n + z²/4n²) / (1 + z²/n) with p̃ = (p + z²/2n) / (1 + z²/n) and z = 1.96

    >>> found = wilson(9, 10)
    >>> round(found.low, 3), round(found.high, 3)
    (0.596, 0.982)
    """
    if not rows:
        return Interval(math.nan, 0.0, 1.0)
    p, z = right / rows, 1.959964
    scale = 1 + z * z / rows
    middle, half = (p + z * z / (2 * rows)) / scale, z * math.sqrt(p * (1 - p) / rows + (z / (2 * rows)) ** 2) / scale
    return Interval(p, max(middle - half, 0.0), min(middle + half, 1.0))
