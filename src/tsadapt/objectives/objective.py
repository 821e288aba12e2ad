"""The objective of a run, in one sentence: source term + target terms + method, each named, weighted and with settings.

    --source-term tsa --target-term mi --method cdan+e     {"tsa": L_∞, "mi": β·L_MI, "domain": L_d}

`with_settings` is how settings reach a config, whoever gives them: command line, Python, TOML, sweeps, estimators.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tsadapt.config import RUN_SETTINGS, SHORTHANDS, RunConfig
from tsadapt.errors import UserError, unknown
from tsadapt.objectives.base import (
    METHODS,
    SOURCE_TERMS,
    TARGET_TERMS,
    Context,
    Method,
    Outputs,
    SourceTerm,
    StatisticsRequest,
    Term,
    View,
)
from tsadapt.objectives.statistics import SharedStatistics
from tsadapt.presets import preset_named
from tsadapt.settings import Setting

__all__ = [
    "Objective",
    "adapts",
    "all_settings",
    "check_objective",
    "full_settings",
    "requested_statistics",
    "setting_named",
    "term_classes",
    "uses",
    "with_settings",
]


TARGET_LABELS = "target-labels"
"""The name of the term of target rows that are trained on with their labels."""


class Objective(nn.Module):
    """The terms of a run, and the statistics that they share."""

    def __init__(self, config: RunConfig, context: Context) -> None:
        super().__init__()
        made = {name: cls(context, **config.settings.get(name, {})) for name, cls in _in_order(config)}
        self.method = cast("Method", made[config.method])
        self.source_term = cast("SourceTerm", made[config.source_term])
        self.target_terms = nn.ModuleList(made[name] for name in config.target_terms)
        self.statistics = SharedStatistics([one for term in made.values() for one in term.statistics()], context)
        self.source_name, self.target_names = config.source_term, config.target_terms
        self.needs_target = any(term.needs_target for term in made.values())
        self.needs_views = max(term.needs_views for term in made.values())

    def __iter__(self) -> Iterator[Term]:
        return iter(cast("list[Term]", [self.source_term, *self.target_terms, self.method]))

    def source_and_target_terms(self, out: Outputs) -> dict[str, Tensor]:
        """The source term and the target terms, by name; the method adds its own.

        Target rows that are trained on with their labels y have their cross-entropy, −log softmax(z)[y], for each head.
        """
        terms: dict[str, Tensor] = {self.source_name: self.source_term(out)}
        for name, term in zip(self.target_names, self.target_terms, strict=True):
            terms[name] = term(out)
        if out.labelled:
            terms[TARGET_LABELS] = torch.stack([_cross_entropy(view) for view in out.labelled]).sum()
        return terms

    def describe(self, out: Outputs) -> dict[str, Any]:
        """What the terms have to say of a step beside their values."""
        return {key: value for term in self for key, value in term.describe(out).items()}


def _cross_entropy(view: View) -> Tensor:
    assert view.labels is not None
    return F.cross_entropy(view.logits, view.labels)


def term_classes(config: RunConfig) -> dict[str, type[Term]]:
    """The classes of the terms of a run, by name; an unknown name is refused."""
    found: dict[str, type[Term]] = {config.source_term: SOURCE_TERMS[config.source_term]}
    for name, cls in (*((n, TARGET_TERMS[n]) for n in config.target_terms), (config.method, METHODS[config.method])):
        if name in found:
            raise UserError(f"Two terms of the objective are called {name!r}: their settings cannot be told apart.")
        found[name] = cls
    return found


def adapts(config: RunConfig) -> bool:
    """Whether a run trains on the target."""
    return any(cls.needs_target for cls in term_classes(config).values())


def _in_order(config: RunConfig) -> list[tuple[str, type[Term]]]:
    """The method first: its parameters are drawn right after the network's, whatever terms stand beside it."""
    classes = term_classes(config)
    return sorted(classes.items(), key=lambda item: item[0] != config.method)


def requested_statistics(config: RunConfig) -> list[StatisticsRequest]:
    """The class-wise statistics that the terms of a run ask for, by their settings alone."""
    found = []
    for name, cls in term_classes(config).items():
        term = cls.__new__(cls)  # without data to be made for
        nn.Module.__init__(term)
        for setting, value in config.settings.get(name, {}).items():
            setattr(term, setting, value)
        found += term.statistics()
    return found


def check_objective(config: RunConfig) -> None:
    """Every term is known, and every weight is one of a term."""
    classes = term_classes(config)
    terms = (config.source_term, *config.target_terms, *cast("type[Method]", classes[config.method]).terms)
    terms += (TARGET_LABELS,) if config.use_target_labels else ()
    if twice := {name for name in terms if terms.count(name) > 1}:
        raise UserError(
            f"Two terms of the objective are called {', '.join(sorted(twice))}: choose another combination."
        )
    if not METHODS[config.method].linear:
        if SOURCE_TERMS[config.source_term].linear:
            raise UserError(
                f"{config.source_term} augments features before a linear head, but the source's logits of"
                f" {config.method} are not linear in them: use another method, or source_term ce."
            )
        if spread := [name for name in config.target_terms if TARGET_TERMS[name].linear]:
            raise UserError(
                f"{spread[0]} augments features before a linear head, but the logits of {config.method} are not linear"
                f" in them: use another method, or leave out {spread[0]}."
            )
    method = METHODS[config.method]
    if config.sdat and method.update is not Method.update and not method.descends:
        raise UserError(
            f"sdat takes the gradient of a sum of terms at moved weights, but {config.method} minimises them by itself,"
            " without step.descend: leave out sdat, or use another method."
        )
    for name in config.term_weight:
        if name not in terms:
            raise UserError(f"{unknown('term', name, terms)} (method {config.method})")
    if not any(config.term_weight.get(name, 1.0) for name in terms):
        raise UserError("term_weight turns every term off: there is nothing left to minimise.")


def with_settings(config: RunConfig, tell: Callable[[str], object] | None = None, /, **given: Any) -> RunConfig:
    """The config with other settings: its own fields, and those of its terms by their plain names.

    A plain name (lambda0) is set in every term of the run that has it, "TERM.NAME" in that term alone. `tsa` and `mi`
    are short for the terms they name, and `preset` for several settings, which all others override. A setting that only
    terms outside the run have is dropped; `tell` hears of it.

    >>> config = with_settings(RunConfig("a", "b"), tsa=True, lambda0=0.5, seed=1)
    >>> config.source_term, config.target_terms, config.settings, config.seed
    ('tsa', ('mi',), {'tsa': {'lambda0': 0.5}}, 1)
    """
    if (preset := given.pop("preset", None)) is not None:
        given = {**preset_named(preset).settings, **{name: value for name, value in given.items() if value is not None}}
    names = {field.name for field in fields(RunConfig)}
    own = {name: value for name, value in given.items() if name in names}
    own |= _shorthands(config, own, given.get("tsa"), given.get("mi"))
    config = replace(config, **own)
    if not config.sdat and config.sdat_rho != RUN_SETTINGS["sdat_rho"].default:
        config = replace(config, sdat_rho=RUN_SETTINGS["sdat_rho"].default)
        if tell is not None:
            tell("sdat_rho is not used: it is a setting of --sdat, which this run does not have.")
    classes = term_classes(config)
    settings = {name: dict(values) for name, values in config.settings.items()}
    for name, value in given.items():
        if name in names or name in SHORTHANDS:
            continue
        only, _, plain = name.rpartition(".")
        owners = [term for term, cls in classes.items() if plain in cls.settings and only in ("", term)]
        if not owners:
            _check_known(name, value)
            if tell is not None:
                others = ", ".join(term for term, cls in _all_terms().items() if plain in cls.settings)
                tell(f"{plain} is not used: it is a setting of {others}, which this run does not have.")
        for term in owners:
            settings.setdefault(term, {})[plain] = value
    for term in own.get("settings", {}):
        if term not in classes and tell is not None:
            tell(f"the settings of {term} are not used: this run does not have that term.")
    return _canonical(replace(config, settings=settings), classes)


def _shorthands(config: RunConfig, own: dict[str, Any], tsa: bool | None, mi: bool | None) -> dict[str, Any]:
    """What --tsa, --mi and --no-mi stand for."""
    found: dict[str, Any] = {}
    if tsa:
        if own.get("source_term", "tsa") != "tsa":
            raise UserError(f"tsa and source_term {own['source_term']} contradict each other: give one of them.")
        found["source_term"] = "tsa"
    elif tsa is False and config.source_term == "tsa":
        found["source_term"] = own.get("source_term", "ce")
        mi = False if mi is None and "target_terms" not in own else mi
    targets = RUN_SETTINGS["target_terms"].check(own.get("target_terms", config.target_terms))
    if mi or (tsa and mi is None):
        found["target_terms"] = targets if "mi" in targets else (*targets, "mi")
    elif mi is False:
        found["target_terms"] = tuple(name for name in targets if name != "mi")
    return found


def _canonical(config: RunConfig, classes: dict[str, type[Term]]) -> RunConfig:
    """Settings of terms checked; those at their default, and of other terms, left out: equal runs, equal configs."""
    settings = {}
    for term, given in config.settings.items():
        if term not in classes:
            if term not in _all_terms():
                raise UserError(unknown("term", term, _all_terms()))
            continue
        known = classes[term].settings
        for name in given:
            if name not in known:
                raise UserError(unknown(f"setting of {term}", name, known))
        checked = {name: known[name].check(value) for name, value in given.items()}
        resolved = classes[term].resolved(checked)
        settings[term] = {name: value for name, value in resolved.items() if value != known[name].default}
        if not settings[term]:
            del settings[term]
    return replace(config, settings=settings)


def full_settings(config: RunConfig) -> dict[str, dict[str, Any]]:
    """Every setting of every term of a run, given or not."""
    return {
        term: {name: config.settings.get(term, {}).get(name, one.default) for name, one in cls.settings.items()}
        for term, cls in term_classes(config).items()
    }


def uses(config: RunConfig, name: str) -> bool:
    """Whether a run depends on a setting at all.

    >>> uses(RunConfig("a", "b"), "lambda0"), uses(RunConfig("a", "b", source_term="tsa"), "lambda0")
    (False, True)
    """
    if name in RUN_SETTINGS or name in SHORTHANDS:
        return name != "sdat_rho" or config.sdat
    only, _, plain = name.rpartition(".")
    return any(plain in cls.settings for term, cls in term_classes(config).items() if only in ("", term))


def setting_named(name: str) -> Setting:
    """The setting of a name; TERM.NAME is that term's own."""
    term, _, plain = name.rpartition(".")
    known = _all_terms()[term].settings if term in _all_terms() else all_settings()
    if term and term not in _all_terms():
        raise UserError(unknown("term", term, _all_terms()))
    if plain not in known:
        raise UserError(unknown(f"setting of {term}" if term else "setting", plain, known))
    return known[plain]


def all_settings() -> dict[str, Setting]:
    """Every setting there is, by its plain name: a run's, those of all terms, and the shorthands."""
    found = {name: one for name, one in RUN_SETTINGS.items() if name != "settings"} | SHORTHANDS
    for cls in _all_terms().values():
        found |= {name: one for name, one in cls.settings.items() if name not in found}
    return found


def _all_terms() -> dict[str, type[Term]]:
    registries = (SOURCE_TERMS, TARGET_TERMS, METHODS)
    return {name: registry[name] for registry in registries for name in registry}


def _check_known(name: str, value: Any) -> None:
    """A setting that the run does not use is one of some term, and its value could be used there."""
    setting_named(name).check(value)
