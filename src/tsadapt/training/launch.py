"""Joining the processes that torchrun started: who speaks, who goes first, and who says what failed."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
from torch import distributed

from tsadapt.core.processes import Processes
from tsadapt.errors import UserError

__all__ = ["in_turn", "joined", "speaks"]

JOINING, PATIENCE = timedelta(minutes=5), timedelta(days=7)
"""How long processes wait for each other at the start, and from then on: the first one evaluates alone.

A dead one ends the others at once.
"""

LOST = "tsadapt/failed"
"""The key of the store under which the first process that fails says so."""


def speaks() -> bool:
    """Whether this process prints and writes files: the only one, or the first."""
    processes = Processes.here()
    return processes is None or processes.first


@contextmanager
def joined() -> Iterator[Processes | None]:
    """Join the processes of this torchrun; None without one, or with a single process.

    What goes wrong is said once, by the process in which it goes wrong first: the others end without a word.
    """
    if distributed.is_available() and distributed.is_initialized():  # by somebody's own program
        yield Processes.here()
        return
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
        yield None
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    _join()
    try:
        processes = Processes()
        with warnings.catch_warnings():
            if not processes.first:
                warnings.simplefilter("ignore")
            yield processes
        # Nobody leaves while another still talks: gloo's threads of the one that is left would abort.
        processes.wait()
    except Exception as error:
        if not _fails_first(type(error).__name__ + str(error)):
            raise SystemExit(2) from None
        if _means_lost(error):
            raise UserError(
                "Another process of this run ended, so this one stops, too. The same command goes on from the last"
                " checkpoint (torchrun --max-restarts does so by itself)."
            ) from error
        raise
    finally:
        with suppress(RuntimeError):  # of a group that has lost a member
            distributed.destroy_process_group()


def _join() -> None:
    """Bring up the default process group with what torchrun says in the environment."""
    from torch.distributed.rendezvous import rendezvous  # not in every build of torch

    try:
        store, rank, number = next(rendezvous("env://", timeout=JOINING))
        if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
            # On one machine the launcher's store outlives a restart, with the addresses of the processes that ended.
            # On several each restart has a new one, or (the launcher's static rendezvous) counts that may differ.
            store = distributed.distributed_c10d.PrefixStore(f"tsadapt/{_attempt()}", store)
        distributed.init_process_group(store=store, rank=rank, world_size=number, timeout=JOINING)
    except (distributed.DistError, RuntimeError) as error:
        raise UserError(
            f"The processes of this run could not join each other: {error} Expected all of them to start within"
            f" {JOINING.seconds // 60} minutes and to reach each other by network; for several machines start torchrun"
            " with --rdzv-backend c10d."
        ) from error
    distributed.distributed_c10d._set_pg_timeout(PATIENCE)


def _attempt() -> str:
    """How often the launcher has started these processes again."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


@contextmanager
def in_turn(processes: Processes | None) -> Iterator[None]:
    """What is inside is done by the first process of every machine alone, then by the others: they find its caches."""
    leads = int(os.environ.get("LOCAL_RANK", "0" if processes is None or processes.first else "1")) == 0
    if processes is not None and not leads:
        processes.wait()
    yield
    if processes is not None and leads:
        processes.wait()


def _fails_first(what: str) -> bool:
    """Whether no other process has failed before, by the store that the launcher keeps."""
    rank, attempt = distributed.get_rank(), _attempt()
    mine = f"{rank}: {what}"[:200]
    try:
        store = distributed.distributed_c10d._get_default_store()
        return bool(store.compare_set(f"{LOST}/{attempt}", "", mine) == mine.encode())
    except RuntimeError:  # the launcher is gone as well
        return rank == 0


def _means_lost(error: Exception) -> bool:
    """Whether an error is of talking to another process."""
    if isinstance(error, distributed.DistBackendError | distributed.DistNetworkError):
        return True
    words = ("Connection closed by peer", "Connection reset by peer", "gloo", "NCCL", "Broken pipe")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)
