"""The one way files are written here: whole or not at all."""

import contextlib
import json
import math
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

__all__ = ["as_json", "csv_cells", "naming", "number", "write_atomically", "write_json", "writing"]


@contextlib.contextmanager
def writing(path: Path, text: bool = False) -> Iterator[IO[Any]]:
    """A file to write to, which appears under its name when it is whole and on the disk.

    It is written beside its place under a name of its own, so that two writers never mix and a reader never sees half
    a file. A link at `path` is replaced, not followed. The umask decides who may read it. An error of the system, such
    as a full disk, names `path`.
    """
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    with naming(path, temporary):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(temporary, flags, 0o666)
        try:
            mode, coding = ("w", "utf-8") if text else ("wb", None)
            with os.fdopen(handle, mode, encoding=coding, newline="" if text else None) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def naming(path: Path, instead_of: Path | None = None) -> Iterator[None]:
    """Give an error of the system the name of the file that was being written, where it has none (a full disk)."""
    try:
        yield
    except OSError as error:
        nameless = error.filename is None or error.filename == os.fspath(instead_of or path)
        if error.errno is None or not nameless:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write all of a file at once."""
    with writing(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON."""
    write_atomically(path, as_json(value))


def as_json(value: Any) -> str:
    """A value as indented JSON, with a newline at its end."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def csv_cells(values: Iterable[Any]) -> list[Any]:
    r"""The cells of a CSV row, so that no spreadsheet runs one of them.

    Text that begins like a formula gets an apostrophe in front, and a carriage return is spelt out. Numbers stay.

    >>> csv_cells(["cat", "=HYPERLINK(1)", "-0.5", -1, "-rw\r"])
    ['cat', "'=HYPERLINK(1)", '-0.5', -1, "'-rw\\r"]
    """
    return [_csv_text(value) if isinstance(value, str) else value for value in values]


def _csv_text(text: str) -> str:
    spelt = text.replace("\r", "\\r")
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return spelt
    try:
        float(text)
    except ValueError:
        return f"'{spelt}"
    return spelt


def number(value: float) -> float | None:
    """A number as JSON has it: None for what is not finite."""
    return float(value) if math.isfinite(value) else None
