"""The kinds of options that the verbs share; what is not given is left to the config file or to the data."""

from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import PrimitiveConstructorSpec

__all__ = ["File", "Number", "Text", "Whole", "WholeNumber"]


def _numbers(kind: type[int] | type[float], metavar: str, expected: str) -> PrimitiveConstructorSpec[Any]:
    """Numbers of a kind; what is none is refused in plain words."""

    def read(words: list[str]) -> int | float:
        try:
            return kind(words[0])
        except ValueError:
            raise ValueError(f"expected {expected}, received {words[0]!r}") from None

    return PrimitiveConstructorSpec(1, metavar, read, lambda value: True, lambda value: [str(value)])


# The help need not say "None" where nothing is given.
_quiet = tyro.conf.arg(help_behavior_hint="")
Text = Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]
WholeNumber = Annotated[int, _numbers(int, "N", "a whole number")]
Whole = Annotated[int | None, _numbers(int, "N", "a whole number"), _quiet]
Number = Annotated[float | None, _numbers(float, "X", "a number"), _quiet]
File = Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]
