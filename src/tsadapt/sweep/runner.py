"""The runs of a sweep, one after another or side by side; one that fails does not stop the rest."""

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from tsadapt.errors import UserError, system_error
from tsadapt.progress import StepProgress
from tsadapt.runs.fit import Interrupted, has_memory, train_run
from tsadapt.runs.folder import RunFolder, SweepFolder
from tsadapt.sweep.plan import Planned

__all__ = ["How", "run_all", "train"]

INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class How:
    """Options of `fit` beside the config."""

    overwrite: bool = False
    tensorboard: bool = False
    keep_memory: bool = False


AS_USUAL = How()


def run_all(
    planned: Sequence[Planned],
    jobs: int = 1,
    quiet: bool = False,
    judged_by: dict[str, Any] | None = None,
    how: How = AS_USUAL,
    ended: Callable[[Planned, str], None] | None = None,
    outdated: Callable[[Planned], bool] | None = None,
) -> dict[Path, str]:
    """Train every run that is not done; why those failed that did, by their folders. Ctrl-C saves and stops all.

    One that is done, but judged by other labels than `judged_by`, or `outdated`, is judged again. `ended` is told of
    each that was trained, as soon as it is over, and why it failed (or nothing).
    """

    def due(one: Planned) -> bool:
        if how.overwrite or not one.done or judged_by not in (None, one.judged_by):
            return True
        return outdated is not None and outdated(one)

    todo = [one for one in planned if due(one)]
    failed: dict[Path, str] = {}
    outcomes = _one_by_one(todo, how) if jobs == 1 or len(todo) < 2 else _side_by_side(todo, jobs, how)
    with StepProgress(len(planned), len(planned) - len(todo), quiet, "run") as progress:
        for one, why in outcomes:
            if why:
                failed[one.out] = why
            if ended is not None:
                ended(one, why)
            progress.advance(progress.done + 1, {})
    return failed


def train(one: Planned, how: How, quiet: bool) -> dict[str, Any]:
    """Train one run here and now; its metrics."""
    return train_run(
        one.config, one.out, quiet=quiet, overwrite=how.overwrite, tensorboard=how.tensorboard,
        keep_memory=how.keep_memory and has_memory(one.config),
    )[1]  # fmt: skip


def _one_by_one(todo: list[Planned], how: How) -> Iterator[tuple[Planned, str]]:
    """Each run with why it failed (or nothing)."""
    for one in todo:
        why = _train(one, how)
        if why == INTERRUPTED:
            raise KeyboardInterrupt
        yield one, why


def _side_by_side(todo: list[Planned], jobs: int, how: How) -> Iterator[tuple[Planned, str]]:
    """As above, `jobs` at a time, each in a process of its own: what kills one does not touch the others."""
    context, threads = _context(), max((os.cpu_count() or 1) // jobs, 1)
    waiting, running = deque(todo), dict[Any, tuple[Any, Connection, Planned]]()
    with _sigterm_as_ctrl_c():
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    one, (answer, tell) = waiting.popleft(), context.Pipe(duplex=False)
                    process = context.Process(target=_in_process, args=(one, how, threads, tell))
                    process.start()
                    tell.close()
                    running[process.sentinel] = process, answer, one
                for sentinel in wait([*running]):
                    process, answer, one = running.pop(sentinel)
                    process.join()
                    why = _answered(answer) or f"its process died (exit status {process.exitcode}; out of memory?)"
                    if why == INTERRUPTED:
                        raise KeyboardInterrupt
                    yield one, "" if why == DONE else why
        finally:
            _stop([process for process, _, _ in running.values()])


DONE = "done"


def _context() -> Any:
    """Processes that start from one which has everything imported already, where the system can do that."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tsadapt.runs.fit"])
    return context


def _answered(answer: Connection) -> str:
    with answer, contextlib.suppress(EOFError):
        return str(answer.recv()) if answer.poll() else ""
    return ""


def _stop(processes: list[Any]) -> None:
    """Ask each once to end (a training saves its state first), and wait; a second Ctrl-C ends them at once."""
    for process in processes:
        process.terminate()
    try:
        for process in processes:
            process.join()
    except KeyboardInterrupt:
        for process in processes:
            process.kill()
        raise


def _in_process(one: Planned, how: How, threads: int, tell: Connection) -> None:
    os.setsid()  # a session of its own, so that Ctrl-C on the terminal reaches it by its parent alone
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    tell.send(_train(one, how) or DONE)


def _end_with_parent() -> None:
    """Stop, as if asked to, when the parent is gone: killed, it could not say so."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def _train(one: Planned, how: How) -> str:
    """Train one run, what it says into a log beside its folder; why it failed, or nothing."""
    log = SweepFolder(one.out.parent.parent).log(RunFolder(one.out))
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file, contextlib.redirect_stderr(file):
        try:
            train(one, how, quiet=True)
        except (Interrupted, KeyboardInterrupt):
            return INTERRUPTED
        except UserError as error:
            return str(error)
        except OSError as error:
            return system_error(error)
        except Exception as error:  # whatever it is, the other runs go on
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
