"""Errors for users, and helpers to phrase them."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["UserError", "counted", "few", "printable", "unknown"]


class UserError(Exception):
    """A mistake in the user's input. The command line prints the message without a traceback."""


def unknown(kind: str, name: str, known: Iterable[str], listed: str | None = None) -> str:
    """The message for an unknown name: the closest known name, and all of them or the command that lists them.

    >>> unknown("method", "Dan", ["cdan", "dann", "jada"])
    "Unknown method 'Dan'. Did you mean 'dann'? Available: cdan, dann, jada."
    """
    known = list(known)
    small = {one.lower(): one for one in reversed(known)}
    near = get_close_matches(name.lower(), reversed(small), n=1, cutoff=0.5)
    hint = f" Did you mean {small[near[0]]!r}?" if near else ""
    rest = f"List them with: {listed}." if listed else f"Available: {', '.join(known)}."
    return f"Unknown {kind} {name!r}.{hint} {rest}"


def few(names: Iterable[str], most: int = 5) -> str:
    """The first names, and the number of the others.

    >>> few(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def printable(text: object) -> str:
    r"""One line that any terminal can show: line breaks, escape sequences and other control characters are escaped.

    File and class names may contain any character, also those that move the cursor or rename the window.

    >>> printable("caf\u00e9\x1b[31m\n")
    'caf\xe9\\x1b[31m\\n'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def counted(n: int, noun: str) -> str:
    """A number and its noun, in the plural if needed.

    >>> counted(1, "row"), counted(2500, "class")
    ('1 row', '2,500 classes')
    """
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"
