"""Numbers as the page shows them."""

import math

from tsadapt.report.page import Interval

__all__ = ["certainty", "interval", "nice_number", "percent"]


def percent(share: float | None, digits: int = 1) -> str:
    """A share as a percentage; one that is nearly all is not rounded to all.

    >>> percent(0.9021), percent(0.99996), percent(0.25, 0), percent(None)
    ('90.2 %', '> 99.9 %', '25 %', '–')
    """
    if share is None or not math.isfinite(share):
        return "–"
    most, least = 1 - 0.1**digits / 100, 0.1**digits / 100
    if most < share < 1 and digits:
        return f"> {100 * most:.{digits}f} %"
    if 0 < share < least / 2 and digits:
        return f"< {100 * least:.{digits}f} %"
    return f"{100 * share:.{digits}f} %"


def certainty(share: float) -> str:
    """The probability of one prediction as a percentage, with a digit more near certainty.

    >>> certainty(0.624), certainty(0.9971), certainty(1.0)
    ('62 %', '99.7 %', '> 99.9 %')
    """
    return "> 99.9 %" if share > 0.9995 else percent(share, 1 if share >= 0.995 else 0)


def interval(found: Interval, digits: int = 1) -> str:
    """The two ends of an interval.

    >>> interval(Interval(0.9, 0.854, 0.93))
    '85.4 to 93.0 %'
    """
    return f"{100 * found.low:.{digits}f} to {100 * found.high:.{digits}f} %"


def nice_number(value: float) -> str:
    """A number with three digits that matter.

    >>> nice_number(0.012345), nice_number(1234.5), nice_number(-2.0), nice_number(0.00001), nice_number(-0.0)
    ('0.0123', '1,234', '−2', '1e−05', '0')
    """
    if not math.isfinite(value):
        return "–"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value or 0.0:.3g}"
    return text.replace("-", "−")
