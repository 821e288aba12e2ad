"""Options of the command line, derived from settings: a setting is written once, and becomes a flag here.

Help texts and defaults stand in config.py (settings of a run) and in the file of each term.
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypeAlias, get_origin

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from tsadapt.config import OBJECTIVE, RUN_SETTINGS
from tsadapt.errors import UserError
from tsadapt.registry import Outline, room_outlines, third_party
from tsadapt.settings import Setting

if TYPE_CHECKING:
    from tsadapt.data.types import Roles

__all__ = [
    "File",
    "Number",
    "TableOptions",
    "Text",
    "Whole",
    "WholeNumber",
    "given_settings",
    "setting_options",
    "terms_of_room",
]


def _numbers(kind: type[int] | type[float], metavar: str, expected: str) -> PrimitiveConstructorSpec[Any]:
    """Numbers of a kind; what is none is refused in plain words."""

    def read(words: list[str]) -> int | float:
        try:
            return kind(words[0])
        except ValueError:
            raise ValueError(f"expected {expected}, received {words[0]!r}") from None

    return PrimitiveConstructorSpec(1, metavar, read, lambda value: True, lambda value: [str(value)])


WHOLE, FRACTION = _numbers(int, "N", "a whole number"), _numbers(float, "X", "a number")

# typing.Optional and a bare tuple: X | None and tuple[str, ...] make tyro import typeguard, which takes 30 ms.
MaybeText: TypeAlias = Optional[str]  # noqa: UP045
MaybeWhole: TypeAlias = Optional[int]  # noqa: UP045
MaybeNumber: TypeAlias = Optional[float]  # noqa: UP045
MaybePath: TypeAlias = Optional[Path]  # noqa: UP045
Texts: Any = tyro.conf.UseAppendAction[tuple]  # type: ignore[type-arg]

# The help need not say "None" where nothing is given.
_quiet = tyro.conf.arg(help_behavior_hint="")
Text = Annotated[MaybeText, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]
WholeNumber = Annotated[int, WHOLE]
Whole = Annotated[MaybeWhole, WHOLE, _quiet]
Number = Annotated[MaybeNumber, FRACTION, _quiet]
File = Annotated[MaybePath, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How tables are read, for verbs that are no run."""

    id_column: Text = None
    """Column of a table that names the rows: carried through to predictions, no feature."""
    label_column: Text = None
    """Column of a table that holds the labels. (default: label, class, target or y)"""

    @property
    def roles(self) -> "Roles":
        """The columns that were named."""
        from tsadapt.data.types import Roles

        return Roles(self.id_column, self.label_column)


Field = tuple[str, Any, Any]
"""Name, type and default of a field, as `dataclasses.make_dataclass` takes them."""

ROOMS = {kind: f"tsadapt.objectives.{kind.replace(' ', '_')}s" for kind in ("source term", "target term", "method")}
"""The packages of the terms, by what they hold."""


def terms_of_room(kind: str) -> dict[str, Outline]:
    """The terms of a room, read without importing torch; those of third parties are imported."""
    found = room_outlines(ROOMS[kind])
    for name, cls in third_party(kind):
        found[name] = Outline(name, (cls.__doc__ or "").partition("\n")[0], cls.settings)
    for term in found.values():
        if taken := [name for name in term.settings if name in RUN_SETTINGS]:
            raise UserError(
                f"The {kind} {term.name!r} has a setting called {taken[0]}, which every run has: rename it."
            )
    return dict(sorted(found.items()))


def setting_options(**defaults: str) -> dict[str, list[Field]]:
    """All settings of a run and of every term as fields of option dataclasses, by their group.

    `defaults` are what the help shows in place of some settings' own defaults.
    """
    groups: dict[str, list[Field]] = {}
    rooms = {kind: terms_of_room(kind) for kind in ROOMS}
    choices = {"source_term": "source term", "target_terms": "target term", "method": "method"}
    for name, one in RUN_SETTINGS.items():
        if one.group:
            available = f" Available: {', '.join(rooms[choices[name]])}." if name in choices else ""
            text = one.help.partition(" (tsadapt list")[0].rstrip(".") + "." + available if available else one.help
            shown = defaults.get(name, one.shown)
            groups.setdefault(one.group, []).extend(_fields(dataclasses.replace(one, help=text, shown=shown)))
    shared: dict[str, dict[str, Setting]] = {}
    for term in [term for terms in rooms.values() for term in terms.values()]:
        for name, one in term.settings.items():
            shared.setdefault(name, {})[term.name] = one
    groups[OBJECTIVE].extend(field for owners in shared.values() for field in _fields(_one_setting(owners)))
    return groups


def _one_setting(owners: dict[str, Setting]) -> Setting:
    """A setting that several terms have under one name, as one flag."""
    first = next(iter(owners.values()))
    for term, one in owners.items():
        if one.kind != first.kind:
            raise UserError(f"The terms {next(iter(owners))} and {term} have a setting {one.name} of different types.")
    shown = first.shown
    if len({str(one.default) for one in owners.values()}) > 1:
        shown = ", ".join(f"{_default(one)} for {term}" for term, one in owners.items())
    return dataclasses.replace(first, help=f"{first.help} [{', '.join(owners)}]", shown=shown)


def _fields(one: Setting) -> list[Field]:
    """The flags of a setting, for its value or as switches; nothing given is None, False or empty."""
    value = [] if bool in one.kinds else [_value_field(one)]
    return value + [(flag, _switch(one, flag, value), False) for flag, value in _switches(one).items()]


def _switches(one: Setting) -> dict[str, Any]:
    """Flags that take no value, and the value that each stands for."""
    if one.switches or bool not in one.kinds:
        return dict(one.switches)
    return {f"no_{one.name}": False} if one.default is True else {one.name: True}


def _switch(one: Setting, flag: str, value: Any) -> Any:
    text = one.help if value is True else one.off or f"Do not: {one.help[0].lower()}{one.help[1:]}"
    if bool not in one.kinds:
        text = f"Short for --{one.name.replace('_', '-')} {value}."
    shown = f" (default: {one.shown})" if one.shown and value is True else ""
    return Annotated[bool, tyro.conf.arg(help=text + shown, help_behavior_hint="")]


def _default(one: Setting) -> str:
    return one.shown or (f"{one.default:g}" if isinstance(one.default, float) else str(one.default))


def _value_field(one: Setting) -> Field:
    flag = one.flag or one.name
    hint = f"(default: {_default(one)})"
    described = tyro.conf.arg(help=one.help, help_behavior_hint=hint)
    if any(get_origin(kind) in (tuple, dict) and str not in one.kinds for kind in one.kinds):
        metavar = one.metavar or "NAME=NUMBER"
        several = tyro.conf.arg(help=one.help, help_behavior_hint=hint, metavar=metavar)
        return flag, Annotated[Texts, several], ()
    if one.choices:
        metavar = "{" + ",".join(map(str, one.choices)) + "}"
        kind: Any = Literal[one.choices]
        return (
            flag,
            Annotated[Optional[kind], tyro.conf.arg(help=one.help, help_behavior_hint=hint, metavar=metavar)],  # noqa: UP045
            None,
        )
    if int in one.kinds:
        return flag, Annotated[MaybeWhole, WHOLE, described], None
    if float in one.kinds:
        return flag, Annotated[MaybeNumber, FRACTION, described], None
    metavar = one.metavar or "TEXT"
    return flag, Annotated[MaybeText, tyro.conf.arg(help=one.help, help_behavior_hint=hint, metavar=metavar)], None


def given_settings(options: Iterable[Any]) -> dict[str, Any]:
    """The settings that were given on the command line, by their names in a config."""
    values = {f.name: getattr(group, f.name) for group in options for f in dataclasses.fields(group)}
    every = {name: one for name, one in RUN_SETTINGS.items() if one.group}
    for kind in ROOMS:
        every |= {name: one for term in terms_of_room(kind).values() for name, one in term.settings.items()}
    given: dict[str, Any] = {}
    for name, one in every.items():
        value = None if bool in one.kinds else values.get(one.flag or name)
        if value not in (None, ()):
            given[name] = value
        for flag in [flag for flag in _switches(one) if values.get(flag)]:
            if given.get(name, _switches(one)[flag]) != _switches(one)[flag]:
                raise UserError(f"--{flag.replace('_', '-')} contradicts another flag: {name} can have one value.")
            given[name] = _switches(one)[flag]
    if "term_weight" in given:
        given["term_weight"] = dict(map(_weight, given["term_weight"]))
    return given


def _weight(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise UserError(f"--term-weight is {text!r}, expected NAME=NUMBER, such as domain=0.5.") from None
