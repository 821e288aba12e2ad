"""From the name of an objective to its settings: a preset, a term, or several joined by +, such as cdan+e+mcc+tsa."""

from typing import Any

from tsadapt.errors import UserError, unknown
from tsadapt.objectives.base import METHODS, SOURCE_TERMS, TARGET_TERMS
from tsadapt.presets import PRESETS

__all__ = ["SOURCE_ONLY", "objective_named"]

SOURCE_ONLY = "source-only"


def objective_named(name: str, what: str = "method") -> dict[str, Any]:
    """The settings of an objective; `what` is what messages call it.

    A name is a preset, a method, a target term or a source term. `+TERM` adds a target term, `+mi` mutual information
    and `+tsa` TSA; `tsa` alone is TSA on source-only.

    >>> objective_named("dann+mi"), objective_named("tsa"), objective_named("cdan+e+mcc")
    ({'method': 'dann', 'mi': True}, {'tsa': True}, {'method': 'cdan+e', 'target_terms': ('mcc',)})
    """
    if (found := _settings(name)) is None:
        raise UserError(unknown(what, name, dict.fromkeys([*PRESETS, *METHODS, *TARGET_TERMS, *SOURCE_TERMS])))
    return found


def _settings(name: str) -> dict[str, Any] | None:
    if name == SOURCE_ONLY:
        return {}
    if name in PRESETS:
        return {"preset": name}
    if name in METHODS:
        return {"method": name}
    if name == "tsa":
        return {"tsa": True}
    if name in TARGET_TERMS:
        return {"target_terms": (name,)}
    if name in SOURCE_TERMS:
        return {"source_term": name}
    base, plus, added = name.rpartition("+")
    if not plus or (found := _settings(base)) is None or "preset" in found:
        return None
    if added in ("tsa", "mi"):
        return None if added in found else found | {added: True}
    terms = found.get("target_terms", ())
    return found | {"target_terms": (*terms, added)} if added in TARGET_TERMS and added not in terms else None
