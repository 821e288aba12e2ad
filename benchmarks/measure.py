"""Timing and memory on a noisy machine: contestants take turns in one run, and medians are compared."""

import ctypes
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

Step = Callable[[], object]


def interleave(
    contestants: Mapping[str, Step],
    rounds: int,
    seconds: float,
    repeat: Mapping[str, int] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of a step of each contestant.

    In each round every contestant has its turn: `repeat` steps (one unless told), each timed. Stops after `rounds`
    rounds, or sooner (but not before three) once `seconds` have passed. The `clock` may be `time.process_time`: other
    programs on the same cores take nothing of that.
    """
    for step in contestants.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    start = time.perf_counter()
    for done in range(rounds):
        if done >= 3 and time.perf_counter() - start > seconds:
            break
        for name, step in contestants.items():
            for _ in range((repeat or {}).get(name, 1)):
                before = clock()
                step()
                times[name].append(clock() - before)
    return {name: statistics.median(values) for name, values in times.items()}


def peak_beyond_start(step: Step, steps: int = 3) -> int:
    """Bytes of resident memory that `steps` steps add at their peak; meaningful in a fresh process on Linux."""
    before = resident()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak so far
    for _ in range(steps):
        step()
    return max(peak() - before, 0)


def peak() -> int:
    """The most bytes of this process that were in memory; `ru_maxrss` would count the process that started it, too."""
    return _status("VmHWM")


def resident() -> int:
    """Bytes of this process in memory, after giving back what the allocator holds without need."""
    ctypes.CDLL(None).malloc_trim(0)
    return _status("VmRSS")


def in_fresh_process(module: str, *arguments: str) -> dict[str, object] | None:
    """What `python -m module arguments` prints, as JSON; None if it fails, such as for want of memory."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


def versions() -> dict[str, str]:
    """What a result depends on beside the code."""
    return {"python": platform.python_version(), "torch": torch.__version__, "machine": platform.machine()}


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {key} in /proc/self/status")
