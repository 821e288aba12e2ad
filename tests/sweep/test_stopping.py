import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.configs import run_config
from tests.sweep.words import SWEEP, choice
from tests.tasks import runs_in

from tsadapt.cli import main
from tsadapt.errors import UserError
from tsadapt.runs.folder import RunFolder
from tsadapt.sweep.plan import Planned
from tsadapt.sweep.runner import run_all


def test_a_process_that_dies_is_reported_and_the_rest_go_on(here):
    base = run_config("source.npz", "target.npz", steps=5, batch_size=16, bottleneck=8, device="cpu")
    planned = [Planned.of(base, {"seed": seed}, Path("s")) for seed in range(3)]
    # The second one's log is a pipe that nobody reads: its process waits there until it is killed.
    log = Path("s/logs") / f"{planned[1].out.name}.txt"
    log.parent.mkdir(parents=True)
    os.mkfifo(log)
    killer = threading.Thread(target=_kill_what_opens, args=(log,))
    killer.start()
    failed = run_all(planned, jobs=2, quiet=True)
    killer.join()
    assert list(failed) == [planned[1].out]
    assert "its process died (exit status -9" in failed[planned[1].out]
    assert planned[0].done
    assert planned[2].done


def _kill_what_opens(log):
    """Kill the child that opens a pipe for writing."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for stat in Path("/proc").glob("[0-9]*/wchan"):
            with contextlib.suppress(OSError):
                if "fifo" in stat.read_text() or "wait_for_partner" in stat.read_text():
                    os.kill(int(stat.parent.name), signal.SIGKILL)
                    return
        time.sleep(0.1)


LONG = ["--steps", "3", "--bottleneck", "8", "--out", "s", "--checkpoint-every", "100000"]


# A job in the background of a shell ignores Ctrl-C, and so would all that the tests start there.
HEARS_CTRL_C = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from tsadapt.cli import main;"
    " sys.exit(main(sys.argv[1:]))"
)


def under_way(words, begun, done=1):
    """Start a sweep, and wait until so many of its runs have begun and so many are done."""
    process = subprocess.Popen([sys.executable, "-c", HEARS_CTRL_C, *words], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while (
        time.monotonic() < deadline
        and process.poll() is None
        and (
            len([*Path("s/runs").glob("*/records.jsonl")]) < begun
            or len([*Path("s/runs").glob("*/metrics.json")]) < done
        )
    ):
        time.sleep(0.1)
    time.sleep(0.5)
    return process


def stopped(words, begun, done=1, number=signal.SIGINT):
    """Start a sweep, and stop it on its way: what it said."""
    process = under_way(words, begun, done)
    process.send_signal(number)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 130, err
    assert "the same command" in err
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_side_by_side_saves_all_and_starts_nothing_more(here, number):
    """Source-only makes three steps and ends; two of the four others are on their way, and two are waiting."""
    words = [*SWEEP[:3], "--grid", "lambda0=0.1,0.2,0.3,0.4", "--grid", "steps=100000", "--jobs", "2", *LONG]
    stopped(words, begun=3, number=number)
    assert len(runs_in("s/runs")) == 3
    assert len([*Path("s/runs").glob("*/checkpoints/step-*.pt")]) == 3


def test_runs_save_and_end_when_their_parent_is_killed(here):
    words = [*SWEEP[:3], "--grid", "lambda0=0.1,0.2,0.3,0.4", "--grid", "steps=100000", "--jobs", "2", *LONG]
    process = under_way(words, begun=3)
    with process:  # which closes its pipe
        process.kill()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len([*Path("s/runs").glob("*/checkpoints/step-*.pt")]) < 3:
        time.sleep(0.1)
    unfinished = [path for path in runs_in("s/runs") if not (path / "metrics.json").exists()]
    assert len(unfinished) == 2
    for path in unfinished:
        while time.monotonic() < deadline:
            with contextlib.suppress(UserError), RunFolder(path).lock():
                break
            time.sleep(0.1)
        else:
            pytest.fail(f"{path} is still being trained")
        assert [*path.glob("checkpoints/step-*.pt")]


def test_stopped_with_one_run_left_and_going_on(here):
    """The short run of two ends, the other is stopped while nobody else works; the same command then ends it."""
    words = [*SWEEP[:3], "--grid", "steps=4,1500", "--jobs", "2", *LONG, "--batch-size", "16"]
    stopped(words, begun=3, done=2)
    unfinished = [path for path in runs_in("s/runs") if not (path / "metrics.json").exists()]
    assert len(unfinished) == 1
    assert [*unfinished[0].glob("checkpoints/step-*.pt")]
    assert main([*words, "--quiet"]) == 0
    assert "resumed at step" in Path("s/logs", f"{unfinished[0].name}.txt").read_text()
    assert choice("s")["failed"] == {}
