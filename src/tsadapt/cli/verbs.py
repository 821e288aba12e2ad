"""From a verb and its words to its dataclass, by tyro."""

import contextlib
import io
import os
import time
from importlib import import_module
from inspect import cleandoc
from typing import Any

import tyro

from tsadapt.errors import UserError

__all__ = ["parser_of", "run_verb"]

OF_MANY = ("features", "fit")
"""Verbs that several processes can share; torchrun starts them."""

PATIENCE = 60.0
"""Seconds for the first process to say what is wrong: torchrun ends all once one has ended."""


def run_verb(verb: str, words: list[str]) -> int:
    """Parse the words of a verb by the class of its name in its module, and run it; the exit status."""
    rank, number = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    if number > 1 and "RANK" in os.environ and verb not in OF_MANY and "--help" not in words and "-h" not in words:
        if rank > 0:  # the first says so, and when it ends torchrun ends this one
            time.sleep(PATIENCE)
            return 2
        raise UserError(f"{verb} runs in one process, but {number} were started: leave out torchrun.")
    quiet = io.StringIO()  # of many processes, the first says what is wrong with the words
    with contextlib.nullcontext() if rank == 0 else contextlib.redirect_stderr(quiet):
        parsed = tyro.cli(_kind(verb), args=words, **_how(verb))
    status: int = parsed()
    return status


def parser_of(verb: str) -> Any:
    """The parser of a verb, an argparse.ArgumentParser, which knows its options."""
    return tyro.extras.get_parser(_kind(verb), **_how(verb))


def _kind(verb: str) -> Any:
    return getattr(import_module(f"tsadapt.cli.{verb}"), verb.capitalize())


def _how(verb: str) -> dict[str, Any]:
    return {
        "prog": f"tsadapt {verb}",
        "description": cleandoc(_kind(verb).__doc__),
        "config": (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
    }
