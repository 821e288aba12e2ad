"""Ctrl-C and SIGTERM as a request to stop after the step."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

__all__ = ["Stop", "stop_signals"]


@dataclass
class Stop:
    """Whether somebody asked for an end."""

    asked: bool = False


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """The first Ctrl-C or SIGTERM asks the loop to stop after its step; a second one stops at once."""
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are somebody else's
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
