"""The portfolio: a few candidates of different kinds, from which validators choose without labels."""

from collections.abc import Sequence
from typing import Any

from tsadapt.errors import UserError
from tsadapt.objectives.named import SOURCE_ONLY, objective_named

__all__ = ["PORTFOLIO", "PREFERRED", "REFERENCE", "members"]

REFERENCE = SOURCE_ONLY
"""Always a member: it is kept unless another is better."""

PORTFOLIO = (REFERENCE, "adabn", "paper", "strong", "bsp+mi")
"""Source-only, AdaBN, both presets, and the best other method by mean rank (python -m paper leaderboard)."""

PREFERRED = "strong"
"""Chosen if it is a member, has not collapsed and beats source-only: validators tell good from bad candidates, but of
good ones they take worse (`python -m paper trust`)."""


def members(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The settings of each member, source-only first.

    A name is a preset, a method or a term; METHOD+mi and METHOD+tsa add mutual information or TSA, METHOD+TERM a target
    term.

    >>> members(["dann+mi"])
    {'source-only': {}, 'dann+mi': {'method': 'dann', 'mi': True}}
    """
    if not names:
        raise UserError(f"--portfolio names no candidate, expected some of: {', '.join(PORTFOLIO)}.")
    return {name: objective_named(name, "candidate") for name in dict.fromkeys([REFERENCE, *names])}
