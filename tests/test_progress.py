"""What progress tells."""

import contextlib
import io
import math
import time

import pytest

from tsadapt import progress
from tsadapt.progress import StepProgress


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand, from 100 seconds on."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_rate_and_time_left_are_of_what_was_done_here(clock):
    shown = StepProgress(total=10, done=2, what="run")
    assert math.isnan(shown.left)  # nothing was done yet
    clock[0] += 600
    shown.advance(3)
    assert shown.rate == pytest.approx(1 / 600)
    assert shown.left == pytest.approx(7 * 600)
    clock[0] += 200  # while the next one runs, the time left goes down and the rate stays
    assert shown.rate == pytest.approx(1 / 600)
    assert shown.left == pytest.approx(7 * 600 - 200)
    clock[0] += 1e6
    assert shown.left == 0


def test_a_line_now_and_then_where_nobody_watches(clock, capsys):
    shown = StepProgress(total=4, what="run")
    clock[0] += 11
    shown.advance(1, {"loss": 0.5})
    clock[0] += 11
    shown.advance(2)
    assert capsys.readouterr().err == "run 1/4, 11 s each, 0:33 left, loss 0.5\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_bar_stays_where_it_is_while_a_run_speaks_elsewhere(monkeypatch):
    terminal, log = Terminal(), io.StringIO()
    monkeypatch.setattr("sys.stderr", terminal)
    with StepProgress(total=3, what="run") as shown, contextlib.redirect_stderr(log):
        shown.advance(2, {})
        shown.bar.refresh()
        assert "2/3" in terminal.getvalue()
    assert log.getvalue() == ""


def test_a_bar_tells_the_time_left_of_slow_things(clock, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    shown = StepProgress(total=3, what="run")
    assert shown.bar is not None
    clock[0] += 3600
    shown.advance(1)
    column = next(c for c in shown.bar.columns if isinstance(c, progress._TimeLeft))
    assert column.render(shown.bar.tasks[0]).plain == "2:00:00 left"
