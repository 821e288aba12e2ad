"""What a user is told when something is wrong with what she gave."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["UserError", "unknown"]


class UserError(Exception):
    """A mistake of the user's: the command line shows its message in one line, and no traceback."""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """What to say of a name that is not known: the nearest, and what there is.

    >>> unknown("method", "dan", ["cdan", "dann", "jada"])
    "Unknown method 'dan'. Did you mean 'dann'? There is: cdan, dann, jada."
    """
    known = list(known)
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"Unknown {kind} {name!r}.{hint} There is: {', '.join(known)}."
