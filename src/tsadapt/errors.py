"""Errors for users, and helpers to phrase them."""

import errno
import re
from collections.abc import Iterable
from difflib import get_close_matches
from urllib.parse import unquote

__all__ = ["UserError", "counted", "few", "printable", "system_error", "unknown", "without_password"]


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


def system_error(error: OSError) -> str:
    """What the system says, of which file, and what helps against a full disk.

    >>> system_error(OSError(28, "No space left on device", "run/model.json"))
    'No space left on device: run/model.json. Free some space there, or choose another place.'
    """
    said = ": ".join(str(part) for part in (error.strerror or error, error.filename) if part)
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{said}. Free some space there, or choose another place." if full else said


def without_password(text: str, url: str) -> str:
    """A text that may quote a URL, with the URL's password left out; also one of its query (?password=…).

    >>> url = "postgresql://me:secret@host/db"
    >>> without_password(f"cannot open {url}: no route", url)
    'cannot open postgresql://me:***@host/db: no route'
    """
    secrets = [value for key, value in re.findall(r"[?&]([^=&]*)=([^&]*)", url) if SECRET.search(key)]
    _, _, rest = url.partition("://")
    access, at, _ = rest.rpartition("@")
    secrets += [access.partition(":")[2]] if at else []
    for secret in sorted({spelt for one in secrets if one for spelt in (one, unquote(one))}, key=len, reverse=True):
        text = text.replace(f":{secret}@", ":***@").replace(f"={secret}", "=***")
        text = text.replace(secret, "***") if len(secret) > 3 else text  # a shorter one is a part of other words
    return text


SECRET = re.compile("pass|pwd|secret|token|key", re.IGNORECASE)


def counted(n: int, noun: str) -> str:
    """A number and its noun, in the plural if needed.

    >>> counted(1, "row"), counted(2500, "class")
    ('1 row', '2,500 classes')
    """
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"
