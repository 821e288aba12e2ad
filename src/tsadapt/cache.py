"""What is kept between runs: features, activations and weights of backbones, and lists of standard input.

Also what runs that were killed left of their memories. It lies where TSADAPT_CACHE says, or else in ~/.cache/tsadapt,
and may be deleted at any time, also while runs go on: whatever they miss they compute again. Files appear when they are
whole, and an entry goes all at once.
"""

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Entry", "cache_root", "clear", "in_words", "kept"]

KINDS = ("features", "agreement", "activations", "backbones", "lists", "memory")
"""The folders of the cache. Nothing else that lies in it is ours to delete."""

GONE = ".gone-"
"""How the name of an entry begins that is being deleted, or was when its process was killed."""

DAY = 86400.0


def cache_root() -> Path:
    """The folder of the cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "tsadapt"
    return Path(os.environ.get("TSADAPT_CACHE") or default).expanduser()


@dataclass(frozen=True)
class Entry:
    """A file or folder of the cache: its kind, its place, and its bytes."""

    kind: str
    path: Path
    size: int


def kept(days: float | None = None) -> list[Entry]:
    """The entries of the cache; those that nobody used or wrote for so many days, if `days` is given."""
    found = []
    for kind in KINDS:
        with contextlib.suppress(OSError):  # it is not there, or was just deleted
            for entry in sorted(os.scandir(cache_root() / kind), key=lambda one: one.name):
                stats = [*_files(Path(entry.path))]
                used = max((max(one.st_atime, one.st_mtime) for one in stats), default=0.0)
                if days is None or entry.name.startswith(GONE) or time.time() - used >= days * DAY:
                    found.append(Entry(kind, Path(entry.path), sum(one.st_size for one in stats)))
    return found


def _files(path: Path) -> Iterator[os.stat_result]:
    """The files of an entry, or itself; what is deleted meanwhile is left out, and links are not followed."""
    with contextlib.suppress(OSError):
        if not path.is_dir() or path.is_symlink():
            yield path.lstat()
            return
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path))
            else:
                yield entry.stat(follow_symlinks=False)


def clear(entries: Sequence[Entry]) -> tuple[int, list[Path]]:
    """Delete entries: the bytes that were freed, and what could not be deleted.

    Each is first given another name, in one step, so that no process finds half of it.
    """
    freed, failed = 0, list[Path]()
    for entry in entries:
        away = entry.path.with_name(f"{GONE}{secrets.token_hex(8)}")
        try:
            os.rename(entry.path, away)
            shutil.rmtree(away) if away.is_dir() and not away.is_symlink() else away.unlink()
            freed += entry.size
        except FileNotFoundError:  # another process was faster
            continue
        except OSError:
            failed.append(entry.path)
    return freed, failed


def in_words(count: int) -> str:
    """Bytes in words.

    >>> in_words(401_408), in_words(6_600_000_000)
    ('401 kB', '6.6 GB')
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}" if count < 100 * size else f"{count / size:.0f} {unit}"
    return f"{count} bytes"
