"""The runs of a sweep, one after another or side by side; one that fails does not stop the rest."""

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from tsadapt.engine.progress import StepProgress
from tsadapt.engine.run import Interrupted, fit
from tsadapt.errors import UserError
from tsadapt.sweep.plan import Planned

__all__ = ["run_all"]

INTERRUPTED = "interrupted"


def run_all(
    planned: Sequence[Planned], jobs: int = 1, quiet: bool = False, judged_by: dict[str, Any] | None = None
) -> dict[Path, str]:
    """Train every run that is not done; why those failed that did, by their folders. Ctrl-C saves and stops all.

    One that is done, but judged by other labels than `judged_by`, is judged again.
    """
    todo = [one for one in planned if not one.done or judged_by not in (None, one.judged_by)]
    failed: dict[Path, str] = {}
    with StepProgress(len(planned), len(planned) - len(todo), quiet, "run") as progress:
        for one, why in _outcomes(todo, jobs):
            if why:
                failed[one.out] = why
            progress.advance(progress.done + 1, {})
    return failed


def _outcomes(todo: list[Planned], jobs: int) -> Iterator[tuple[Planned, str]]:
    """Each run with why it failed (or nothing), as they end."""
    if jobs == 1 or len(todo) < 2:
        for one in todo:
            why = _train(one)
            if why == INTERRUPTED:
                raise KeyboardInterrupt
            yield one, why
        return
    left = list(todo)
    with _sigterm_as_ctrl_c():
        for one, why in _in_pool(todo, jobs):
            left.remove(one)
            yield one, why
        for one in left:  # a process died and took the pool with it: each of the others gets a pool of its own
            found = [*_in_pool([one], 1)]
            yield one, found[0][1] if found else "its process died (out of memory?)"


def _in_pool(todo: list[Planned], jobs: int) -> Iterator[tuple[Planned, str]]:
    threads = max((os.cpu_count() or 1) // jobs, 1)
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin, initargs=(threads,))
    try:
        futures = {pool.submit(_train, one): one for one in todo}
        for future in as_completed(futures):
            why = future.result()
            if why == INTERRUPTED:
                raise KeyboardInterrupt
            yield futures[future], why
    except BrokenProcessPool:
        return
    except BaseException:
        for process in (getattr(pool, "_processes", None) or {}).values():
            process.terminate()  # a training saves its state on SIGTERM and ends
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(threads: int) -> None:
    """In a worker: its share of the cores, and a session of its own, so that Ctrl-C reaches it by the parent alone."""
    os.setsid()
    torch.set_num_threads(threads)


def _train(one: Planned) -> str:
    """Train one run, what it says into a log beside its folder; why it failed, or nothing."""
    log = one.out.parent.parent / "logs" / f"{one.out.name}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file, contextlib.redirect_stderr(file):
        try:
            fit(one.config, one.out, quiet=True)
        except (Interrupted, KeyboardInterrupt):
            return INTERRUPTED
        except UserError as error:
            return str(error)
        except Exception as error:  # whatever it is, the other runs go on
            import traceback

            traceback.print_exc(file=file)
            return f"{type(error).__name__}: {error} (see {log})"
    return ""


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before: Any = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
