"""Files that may be damaged, or no files at all: what is wrong with them, in one line."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tsadapt.errors import UserError

__all__ = ["oddity", "reading", "reason"]


@contextlib.contextmanager
def reading(name: str, expected: str) -> Iterator[None]:
    """Turn whatever a reader raises about a damaged file into a UserError that names the file.

    >>> with reading("a.npy", "an array"):
    ...     raise EOFError("no data left")
    Traceback (most recent call last):
    tsadapt.errors.UserError: a.npy cannot be read: no data left. Expected an array.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # parsers of damaged files raise exceptions of any type
        raise UserError(f"{name} cannot be read: {reason(error)}. Expected {expected}.") from error


def reason(error: Exception) -> str:
    r"""The first line of an exception's message, or its type.

    >>> reason(ValueError("too short.\nSee the manual.")), reason(KeyError("x")), reason(MemoryError())
    ('too short', "KeyError: 'x'", 'MemoryError')
    """
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    first = next(iter(text.strip().splitlines()), "").rstrip(".: ")
    kind = type(error).__name__
    return f"{kind}: {first}" if first and isinstance(error, LookupError) else first or kind


def oddity(path: str | Path) -> str | None:
    """What is at a path that is no regular file; None for a regular file, and for nothing at all.

    Nothing is opened: opening a pipe would wait for its writer, maybe forever.

    >>> oddity("/"), oddity("/dev/null"), oddity("nowhere")
    ('a folder', 'a device', None)
    """
    try:
        mode = os.stat(path).st_mode
    except ValueError:  # a NUL character
        return "not a valid path"
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "a link in a circle"
        return "a broken link" if os.path.islink(path) else None
    if stat.S_ISREG(mode):
        return None
    kinds = {"a folder": stat.S_ISDIR, "a pipe": stat.S_ISFIFO, "a socket": stat.S_ISSOCK}
    return next((kind for kind, matches in kinds.items() if matches(mode)), "a device")
