"""From a verb and its words to its dataclass, by tyro."""

from importlib import import_module
from inspect import cleandoc

import tyro

__all__ = ["run_verb"]


def run_verb(verb: str, words: list[str]) -> int:
    """Parse the words of a verb by the class of its name in its module, and run it; the exit status."""
    kind = getattr(import_module(f"tsadapt.cli.{verb}"), verb.capitalize())
    parsed = tyro.cli(
        kind,
        args=words,
        prog=f"tsadapt {verb}",
        description=cleandoc(kind.__doc__),
        config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
    )
    status: int = parsed()
    return status
