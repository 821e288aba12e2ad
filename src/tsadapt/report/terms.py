"""What each registered term is, in a few words: read from its class, for `tsadapt list` and the documentation."""

import re
from dataclasses import dataclass, replace
from typing import Any

from tsadapt.config import RunConfig
from tsadapt.objectives.base import METHODS, SOURCE_TERMS, TARGET_TERMS, Method, SourceTerm, TargetTerm, Term
from tsadapt.objectives.objective import requested_statistics
from tsadapt.registry import Registry
from tsadapt.settings import Setting

__all__ = ["GROUPS", "Facts", "facts"]

GROUPS: dict[str, Registry[Any]] = {"source terms": SOURCE_TERMS, "target terms": TARGET_TERMS, "methods": METHODS}
"""The registries of terms, by what a list of them is called."""


@dataclass(frozen=True)
class Facts:
    """A term's name and summary, its paper and year, what it needs and costs, and whether TSA composes with it."""

    name: str
    summary: str
    paper: str
    kind: str
    needs: str
    cost: str
    composes: str
    practice: str
    terms: str
    settings: str

    @property
    def year(self) -> str:
        """The year of the paper; empty if there is none.

        >>> Facts("tsa", "", "Li et al., CVPR 2021", *[""] * 7).year
        '2021'
        """
        years: list[str] = re.findall(r"\b(?:19|20)\d\d\b", self.paper)
        return years[-1] if years else ""


def facts(group: str) -> list[Facts]:
    """The facts of every term of a group, by name.

    >>> [(found.kind, found.needs) for found in facts("methods") if found.name == "mcd"]
    [('alternating, 2 heads', 'target')]
    """
    return [_facts(name, GROUPS[group][name]) for name in GROUPS[group]]


def _facts(name: str, cls: type[Term]) -> Facts:
    settings = ", ".join(f"`{one.name}` {_default(one, cls)}" for one in cls.settings.values())
    terms = ", ".join(f"`{term}`" for term in cls.terms) if issubclass(cls, Method) else ""
    return Facts(
        name, (cls.__doc__ or "").partition("\n")[0], cls.paper, _kind(cls), ", ".join(_needs(name, cls)), cls.cost,
        _composes(name, cls), " ".join(cls.practice.split()), terms, settings,
    )  # fmt: skip


def _default(one: Setting, cls: type[Term]) -> Any:
    """What a setting is in this term unless given; terms that share one may each have their own `usual_NAME`."""
    return getattr(cls, f"usual_{one.name}", None) or one.shown or one.default


def _kind(cls: type[Term]) -> str:
    """How a method minimises, and how many heads its network has."""
    if not issubclass(cls, Method):
        return ""
    steps = "one backward" if cls.update is Method.update else "alternating"
    return steps if cls.heads == 1 else f"{steps}, {cls.heads} heads"


def _needs(name: str, cls: type[Term]) -> list[str]:
    """What has to be there beside the labelled source."""
    config, normalised = RunConfig("source", "target"), False
    if issubclass(cls, SourceTerm):
        config = replace(config, source_term=name)
    elif issubclass(cls, TargetTerm):
        config = replace(config, target_terms=(name,))
    elif issubclass(cls, Method):
        config, normalised = replace(config, method=name), cls.target_statistics
    memory = any(request.estimator == "memory" for request in requested_statistics(config))
    found = {
        "target": cls.needs_target or normalised,
        "memory": memory,
        "two views": cls.needs_views > 1,
        "batch normalisation": normalised,
        "linear head": issubclass(cls, (SourceTerm, TargetTerm)) and cls.linear,
    }
    return [what for what, needed in found.items() if needed] + [cls.needs_package] * bool(cls.needs_package)


def _composes(name: str, cls: type[Term]) -> str:
    """Whether TSA can stand beside it."""
    if issubclass(cls, SourceTerm):
        return "it is TSA" if name == "tsa" else "in its place"
    if issubclass(cls, Method):
        how = [cls.augments] if cls.augments else ["for each head"] if cls.heads > 1 else []
        return ", ".join(["yes", *how]) if cls.linear else "no"
    return "yes"
