"""A setting, written once: its type, default, limits and help. Config, terms, command line and sweeps read it here.

Imports nothing heavy, so that --help answers at once.
"""

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tsadapt.errors import UserError, unknown

__all__ = ["Setting", "declared_settings", "setting"]

WORDS = {bool: "true or false", float: "a number", int: "a whole number", str: "text"}


@dataclass(frozen=True)
class Setting:
    """One setting of a run or of a term.

    `kind` is its type hint, `flag` its name on the command line if it is another one. `shown` is what --help gives as
    the default where the value itself says little. `switches` are extra flags, each standing for a value:
    {"no_covariance": "none"}; `off` is the help of the one that turns a setting off. A setting with `result=False`
    changes how a run is done and not what comes out of it. `usual` is what None usually becomes.
    """

    name: str
    kind: Any
    default: Any
    help: str
    group: str = ""
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    shown: str = ""
    metavar: str = ""
    flag: str = ""
    off: str = ""
    switches: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    result: bool = True
    usual: Any = None

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types it takes, None aside."""
        parts = get_args(self.kind) if get_origin(self.kind) in (Union, UnionType) else (self.kind,)
        return tuple(part for part in parts if part is not NoneType)

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values it can have; empty where they are not a list."""
        return tuple(value for kind in self.kinds if get_origin(kind) is Literal for value in get_args(kind))

    def check(self, value: Any, where: str = "") -> Any:
        """The value in its type (a whole number will do for a fraction, a list for a tuple), or a UserError."""
        if value is None and (self.default is None or NoneType in get_args(self.kind)):
            return None
        name = f"{where}{self.name}"
        if self.choices and isinstance(value, str) and value not in self.choices and str not in self.kinds:
            raise UserError(f"{name} is {value!r}. {unknown('value', value, map(str, self.choices))}")
        typed = next((found for kind in self.kinds if (found := _as(kind, value)) is not None), None)
        if typed is None:
            raise UserError(f"{name} is {value!r}, expected {self.expected}.")
        if isinstance(typed, int | float) and not isinstance(typed, bool):
            self._check_limits(name, typed)
        return typed

    def parse(self, word: str) -> Any:
        """The value of a word on the command line.

        >>> Setting("steps", int | None, None, "").parse("100"), Setting("mi", bool, False, "").parse("true")
        (100, True)
        """
        word = word.strip()
        value: Any = word
        if bool in self.kinds and word.lower() in ("true", "false"):
            value = word.lower() == "true"
        elif int in self.kinds or float in self.kinds:
            for kind in (kind for kind in (int, float) if kind in self.kinds):
                with contextlib.suppress(ValueError):
                    value = kind(word)
                    break
        elif any(get_origin(kind) is tuple for kind in self.kinds):
            value = tuple(part for part in word.split("+") if part and word != "none")
        return self.check(value)

    @property
    def expected(self) -> str:
        """What it takes, in words."""
        if self.choices and str not in self.kinds:
            return f"one of {', '.join(map(repr, self.choices))}"
        words = [WORDS.get(kind) or _CONTAINERS.get(get_origin(kind), str(kind)) for kind in self.kinds]
        return " or ".join(dict.fromkeys(words))

    def _check_limits(self, name: str, value: float) -> None:
        if not math.isfinite(value):
            raise UserError(f"{name} is {value}, expected a finite number.")
        low, high = self.at_least, self.at_most
        if self.above is not None and value <= self.above:
            raise UserError(f"{name} is {value}, expected more than {_number(self.above)}.")
        if low is not None and high is not None and not low <= value <= high:
            raise UserError(f"{name} is {value}, expected a number from {_number(low)} to {_number(high)}.")
        if low is not None and value < low:
            raise UserError(f"{name} is {value}, expected {_number(low)} or more.")
        if high is not None and value > high:
            raise UserError(f"{name} is {value}, expected at most {_number(high)}.")


_CONTAINERS: dict[Any, str] = {tuple: "a list of names", dict: "a table of numbers by name"}


def _number(value: float) -> str:
    return "zero" if value == 0 else f"{value:g}" if value < 1e6 else str(int(value))


def _as(kind: Any, value: Any) -> Any:
    """A value as one of a type; None if it is not."""
    origin = get_origin(kind)
    if origin is Literal:
        return value if value in get_args(kind) else None
    if origin is tuple:
        return tuple(value) if isinstance(value, list | tuple) and all(isinstance(v, str) for v in value) else None
    if origin is dict:
        numbers = isinstance(value, Mapping) and all(
            isinstance(v, Real) and not isinstance(v, bool) for v in value.values()
        )
        return {str(k): float(v) for k, v in value.items()} if numbers else None
    if kind is bool:
        return bool(value) if type(value).__name__ in ("bool", "bool_") else None
    if kind in (int, float) and isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool):
        return kind(value)  # NumPy's numbers too
    return value if type(value) is kind else None


def setting(default: Any, help: str, **details: Any) -> Any:  # noqa: A002 (the word everybody knows)
    """Declare a setting, as the value of an annotated attribute; `details` are fields of `Setting`."""
    content = {"help": help, **details}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=content)
    return dataclasses.field(default=default, metadata=content)


def declared_settings(cls: type) -> dict[str, Setting]:
    """The settings that the body of a class declares, in their order.

    >>> class Weighted:
    ...     beta: float = setting(0.1, "Weight of the term.", at_least=0)
    >>> declared_settings(Weighted)["beta"].check(1)
    1.0
    """
    declared = {name: value for name, value in vars(cls).items() if isinstance(value, Field) and value.metadata}
    if not declared:
        return {}
    hints = get_type_hints(cls)
    return {name: described(name, hints[name], value) for name, value in declared.items()}


def described(name: str, kind: Any, value: "Field[Any]") -> Setting:
    """The setting that a field declares."""
    default = value.default
    if value.default_factory is not MISSING:
        default = value.default_factory()
    return Setting(name, kind, default, **value.metadata)
