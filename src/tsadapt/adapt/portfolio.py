"""The portfolio: a few candidates of different kinds, from which validators choose without labels."""

from collections.abc import Sequence
from typing import Any

from tsadapt.errors import UserError, unknown
from tsadapt.objectives.base import METHODS, TARGET_TERMS
from tsadapt.presets import PRESETS

__all__ = ["PORTFOLIO", "REFERENCE", "members"]

REFERENCE = "source-only"
"""Always a member: it is kept unless another is better."""

PORTFOLIO = (REFERENCE, "adabn", "paper", "strong", "cdan+e")
"""Source-only, AdaBN, both presets, and an adversarial method: kinds that fail in different ways."""

SUFFIXES: dict[str, dict[str, Any]] = {"+tsa": {"tsa": True}, "+mi": {"mi": True}}


def members(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The settings of each member, source-only first.

    A name is a preset, a method or a target term; METHOD+mi and METHOD+tsa add mutual information or TSA.

    >>> members(["dann+mi"])
    {'source-only': {}, 'dann+mi': {'method': 'dann', 'mi': True}}
    """
    if not names:
        raise UserError(f"--portfolio names no candidate, expected some of: {', '.join(PORTFOLIO)}.")
    return {name: _settings(name) for name in dict.fromkeys([REFERENCE, *names])}


def _settings(name: str) -> dict[str, Any]:
    if name == REFERENCE:
        return {}
    if name in PRESETS:
        return {"preset": name}
    if name in METHODS:
        return {"method": name}
    if name in TARGET_TERMS:
        return {"target_terms": (name,)}
    for suffix, settings in SUFFIXES.items():
        base = name.removesuffix(suffix)
        if base != name and (base in METHODS or base in TARGET_TERMS):
            return _settings(base) | settings
    raise UserError(unknown("candidate", name, [REFERENCE, *PRESETS, *METHODS, *TARGET_TERMS]))
