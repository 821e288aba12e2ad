"""Processes that wait for work: started once, and asked many times what n of them make of the same call."""

import contextlib
import os
import tempfile
import traceback
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing

__all__ = ["Pool", "pools"]


def _work(rank: int, number: int, meeting: str, pipe: Any) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=number, timeout=timedelta(seconds=120)
    )
    while (job := pipe.recv()) is not None:
        function, arguments = job
        try:
            pipe.send((True, function(*arguments)))
        except BaseException:  # handed to the test, whatever it is
            pipe.send((False, traceback.format_exc()))
    distributed.destroy_process_group()


class Pool:
    """`number` gloo processes."""

    def __init__(self, number: int, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.number = number
        self.pipes, self.workers = [], []
        for rank in range(number):
            ours, theirs = context.Pipe()
            worker = context.Process(
                target=_work, args=(rank, number, str(folder / f"of-{number}"), theirs), daemon=True
            )
            worker.start()
            self.pipes.append(ours)
            self.workers.append(worker)

    def run(self, function: Any, *arguments: Any) -> list[Any]:
        """What each process returns; the first error of one is raised here."""
        for pipe in self.pipes:
            pipe.send((function, arguments))
        found = [pipe.recv() for pipe in self.pipes]
        for rank, (done, said) in enumerate(found):
            if not done:
                raise AssertionError(f"process {rank} of {self.number}:\n{said}")
        return [said for _, said in found]

    def close(self) -> None:
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for worker in self.workers:
            worker.join(10)
            if worker.is_alive():
                worker.terminate()


@contextlib.contextmanager
def pools() -> Iterator[Any]:
    """A function that gives the pool of so many processes, each started when it is first asked for."""
    started: dict[int, Pool] = {}
    with tempfile.TemporaryDirectory() as folder:

        def of(number: int) -> Pool:
            if number not in started:
                started[number] = Pool(number, Path(folder))
            return started[number]

        os.environ.setdefault("OMP_NUM_THREADS", "1")
        try:
            yield of
        finally:
            for pool in started.values():
                pool.close()
