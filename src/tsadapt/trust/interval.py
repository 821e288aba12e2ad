"""A number with the interval that it is expected to lie in."""

from dataclasses import dataclass

import numpy as np

__all__ = ["Interval", "interval_of"]


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
