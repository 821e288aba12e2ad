"""Progress for people: a bar on a terminal, a line now and then elsewhere."""

import math
import sys
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

__all__ = ["StepProgress"]

QUIET_SECONDS = 30.0
"""Seconds between two lines when nobody watches."""

BAR_WIDTH = 90
"""Columns that the bar takes with its numbers; what was logged has the rest."""


class StepProgress:
    """Shows steps (or what else is counted), their rate, the time left and what was logged last, on standard error."""

    def __init__(self, total: int, done: int = 0, quiet: bool = False, what: str = "step") -> None:
        self.total, self.start, self.done, self.quiet, self.what = total, done, done, quiet, what
        self.began = self.last = time.monotonic()
        self.printed = self.began - QUIET_SECONDS + 10  # the first line soon, so that it is known to work
        self.text = ""
        self.bar: Progress | None = None
        if sys.stderr.isatty() and not quiet:
            columns = (
                TextColumn(what), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[rate]}"),
                _TimeLeft(self), TextColumn("{task.fields[text]}"),
            )  # fmt: skip
            # This very stream: a run that is counted here may send its own words elsewhere, in this process.
            self.bar = Progress(*columns, console=Console(file=sys.stderr), transient=True)
            self.task = self.bar.add_task("", total=total, completed=done, rate="", text="")

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def advance(self, step: int, logged: dict[str, Any] | None = None) -> None:
        """Say that a step is done, and what was logged at it."""
        self.done, self.last = step, time.monotonic()
        if logged is not None:
            self.text = _short(logged)
            room = 0 if self.bar is None else self.bar.console.width - BAR_WIDTH
            if self.bar is not None and len(self.text) > room:
                self.text = self.text[: room - 1] + "…" if room > 10 else ""
        if self.bar is not None:
            if logged is not None or step % 10 == 0 or self.rate < 50:
                self.bar.update(self.task, completed=step, rate=_per_second(self.rate), text=self.text)
        elif not self.quiet and time.monotonic() - self.printed >= QUIET_SECONDS:
            self.printed = time.monotonic()
            text = f", {self.text}" if self.text else ""
            print(
                f"{self.what} {step}/{self.total}, {_per_second(self.rate)}, {_clock(self.left)} left{text}",
                file=sys.stderr,
            )

    @property
    def rate(self) -> float:
        """Steps a second since the start."""
        return (self.done - self.start) / max(self.last - self.began, 1e-9)

    @property
    def left(self) -> float:
        """Seconds until all is done, at that rate; nan while nothing is."""
        if self.done == self.start:
            return math.nan
        return max((self.total - self.done) / self.rate - (time.monotonic() - self.last), 0.0)


class _TimeLeft(ProgressColumn):
    """Rich's own forgets how fast things went after half a minute, and a run takes longer."""

    def __init__(self, progress: StepProgress) -> None:
        super().__init__()
        self.progress = progress

    def render(self, task: Task) -> Text:
        return Text(f"{_clock(self.progress.left)} left")


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> _clock(75), _clock(7321.4), _clock(math.nan)
    ('1:15', '2:02:01', '-:--')
    """
    if math.isnan(seconds):
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def _per_second(rate: float) -> str:
    """How fast, in the unit that reads best.

    >>> _per_second(120), _per_second(2.5), _per_second(1 / 7.4), _per_second(1 / 35)
    ('120/s', '2.5/s', '7.4 s each', '35 s each')
    """
    if 0 < rate < 1:
        return f"{1 / rate:.{0 if rate < 0.1 else 1}f} s each"
    return f"{rate:.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


def _short(logged: dict[str, Any]) -> str:
    shown = {"lambda": "λ", "classes_without_pseudo_labels": "classes without pseudo-labels"}
    hidden = {"step", "lr", "shift_norm", "class_spread", "shift_term", "variance_term", "logit_size"}
    words = []
    for name, value in logged.items():
        if isinstance(value, int | float) and name not in hidden:
            words.append(f"{shown.get(name, name)} {value:.3g}")
    return " ".join(words)
