"""Numbers to coordinates: what the templates draw as inline SVG."""

from dataclasses import dataclass

import numpy as np

from tsadapt.report.page import Curve
from tsadapt.report.shown_numbers import nice_number

__all__ = ["HEIGHT", "WIDTH", "Line", "drawn"]

WIDTH, HEIGHT = 300, 120
"""Of a chart of one curve, in its own units."""

MOST_PLACES = 240
"""Points of a curve that are drawn."""


@dataclass(frozen=True)
class Line:
    """A curve as an SVG path, its ends, and its points for pointing at: (x, y, step, value)."""

    name: str
    group: str
    path: str
    low: str
    high: str
    first: int
    last: int
    end: str
    places: tuple[tuple[float, float, int, str], ...]
    zero: float | None


def drawn(curve: Curve) -> Line:
    """A curve fitted into WIDTH × HEIGHT.

    >>> line = drawn(Curve("ce", "terms", (1, 50, 100), (2.0, 1.0, 0.5)))
    >>> line.path, line.low, line.high
    ('M0 0 L148.5 80 L300 120', '0.5', '2')
    """
    steps, values = np.array(curve.steps, float), np.array(curve.values, float)
    if len(steps) > MOST_PLACES:
        pick = np.unique(np.linspace(0, len(steps) - 1, MOST_PLACES).round().astype(int))
        steps, values = steps[pick], values[pick]
    low, high = float(values.min()), float(values.max())
    span, width = high - low, max(float(steps[-1] - steps[0]), 1.0)
    xs = (steps - steps[0]) / width * WIDTH
    ys = (high - values) / span * HEIGHT if span > 0 else np.full(len(values), HEIGHT / 2)
    zero = high / span * HEIGHT if low < 0 < high else None
    places = tuple(
        (round(float(x), 1), round(float(y), 1), int(step), nice_number(float(value)))
        for x, y, step, value in zip(xs, ys, steps, values, strict=True)
    )
    path = "M" + " L".join(f"{x:g} {y:g}" for x, y, *_ in places)
    ends = nice_number(low), nice_number(high)
    first, last = int(steps[0]), int(steps[-1])
    return Line(curve.name, curve.group, path, *ends, first, last, nice_number(float(values[-1])), places, zero)
