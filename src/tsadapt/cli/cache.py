"""tsadapt cache: what is kept between runs."""

from dataclasses import dataclass
from typing import Annotated, Literal, Optional

import tyro

from tsadapt.cli.options import FRACTION

__all__ = ["Cache"]

MaybeNumber = Optional[float]  # noqa: UP045 (as in options)


@dataclass(frozen=True)
class Cache:
    """Say what is kept between runs and how large it is, or clear it.

    Features and activations of images, weights of frozen backbones, and lists of standard input lie in
    ~/.cache/tsadapt, or where TSADAPT_CACHE says. Runs compute again what they miss, also those that are under way.

    Example: tsadapt cache clear --older-than 30
    """

    do: Annotated[tyro.conf.Positional[Literal["size", "clear"]], tyro.conf.arg(metavar="[{size,clear}]")] = "size"
    """What to do."""
    older_than: Annotated[
        MaybeNumber, FRACTION, tyro.conf.arg(metavar="DAYS", help_behavior_hint="(default: of any age)")
    ] = None
    """Only what was last used or written so many days ago."""

    def __call__(self) -> int:
        """Say, or clear and say."""
        from tsadapt.cache import cache_root, clear, in_words, kept
        from tsadapt.errors import UserError, counted, printable

        days = self.older_than
        if days is not None and not 0 <= days < float("inf"):
            raise UserError(f"--older-than is {days:g}, expected a number of days, zero or more.")
        entries = kept(days)
        if self.do == "clear":
            freed, failed = clear(entries)
            print(
                printable(f"cleared {counted(len(entries) - len(failed), 'item')} of {cache_root()}: {in_words(freed)}")
            )
            if failed:
                raise UserError(f"{counted(len(failed), 'item')} cannot be cleared, the first {failed[0]}.")
            return 0
        width = max((len(kind) for kind in {entry.kind for entry in entries}), default=0)
        for kind in sorted({entry.kind for entry in entries}):
            mine = [entry.size for entry in entries if entry.kind == kind]
            print(printable(f"{kind:<{width}}  {in_words(sum(mine)):>9}  {counted(len(mine), 'item')}"))
        total = in_words(sum(entry.size for entry in entries))
        print(printable(f"{total} in {cache_root()}{'' if days is None else f', not used for {days:g} days'}"))
        return 0
