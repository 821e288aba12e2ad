"""Where a verb writes its result: a file that appears whole, or standard output."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tsadapt.errors import UserError

__all__ = ["check_output", "output"]

STREAM = Path("-")
"""Standard output, as `--out -`."""


def check_output(path: Path | None, data: str | None = None) -> None:
    """Refuse a place that is no file to write, or the data itself, before any work is done."""
    if path is None or path == STREAM:
        return
    if path.is_dir():
        raise UserError(f"--out {path} is a folder, expected a file to write.")
    if path.exists() and not path.is_file():
        raise UserError(f"--out {path} is a device, pipe or socket, expected a file. For standard output: --out -")
    given = None if data is None else os.path.expanduser(data)
    if given is not None and path.exists() and os.path.exists(given) and path.samefile(given):
        raise UserError(f"--out {path} is the data itself: choose another file.")
    if any(part.exists() and not part.is_dir() for part in path.absolute().parents):
        raise UserError(f"--out {path} lies in a file, expected a folder.")


@contextlib.contextmanager
def output(path: Path | None, data: str | None = None, text: bool = True) -> Iterator[IO[Any]]:
    """What to write to: standard output for None and `-`, else a file that appears when it is whole."""
    from tsadapt.files import writing

    check_output(path, data)
    if path is None or path == STREAM:
        yield sys.stdout if text else sys.stdout.buffer
        return
    try:
        with writing(path, text) as file:
            yield file
    except OSError as error:
        if error.filename is not None and not str(error.filename).startswith(str(path.parent)):
            raise
        raise UserError(f"{path} cannot be written: {error.strerror}. Choose another --out.") from error
