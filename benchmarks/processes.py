"""Two processes against one: how long a step takes, and where the time goes, as ratios within one run.

python -m benchmarks.processes            # one process with two threads, against two processes with one each
python -m benchmarks.processes --steps 50 --batch 128
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, multiprocessing

from tsadapt.config import RunConfig
from tsadapt.core.processes import Processes
from tsadapt.data.types import Domain
from tsadapt.models.networks import Architecture, build
from tsadapt.objectives.objective import with_settings
from tsadapt.training.trainer import Trainer

__all__ = ["Size", "measure"]

CLASSES = 10


@dataclass(frozen=True)
class Size:
    """A task of random 28×28 images: rows of each domain, rows of a batch, steps that are timed."""

    rows: int = 2000
    batch: int = 128
    steps: int = 20


def _domain(rows: int, seed: int, labels: bool) -> Domain:
    drawn = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (rows, 1, 28, 28), dtype=torch.uint8, generator=drawn)
    y: Tensor | None = torch.arange(rows) % CLASSES if labels else None
    return Domain(f"random-{seed}", x, y, tuple(map(str, range(CLASSES))) if labels else None)


def _seconds(size: Size) -> list[float]:
    """How long each step takes, here."""
    config = with_settings(
        RunConfig("a", "b"), tsa=True, method="cdan", network="mcd-28", steps=size.steps + 3, batch_size=size.batch,
        target_batch_size=size.batch, lr=0.01, weight_decay=5e-4, device="cpu", separate_bn=False, precision="fp32",
    )  # fmt: skip
    torch.manual_seed(0)
    model = build(Architecture("mcd-28", CLASSES, 784))
    source, target = _domain(size.rows, 0, True), _domain(size.rows, 1, False)
    trainer = Trainer(config, model, source, target, processes=Processes.here())
    return [*_timed(trainer)][3:]


def _timed(trainer: Trainer) -> Iterator[float]:
    while trainer.at < trainer.steps:
        began = time.perf_counter()
        trainer.step()
        yield time.perf_counter() - began


def _process(rank: int, number: int, threads: int, meeting: str, size: Size, answer: Any) -> None:
    torch.set_num_threads(threads)
    if number > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=number, timeout=timedelta(hours=1)
        )
    found = _seconds(size)
    if rank == 0:
        answer.put(found)
    if number > 1:
        distributed.destroy_process_group()


def measure(size: Size, number: int, threads: int) -> float:
    """The median seconds of a step of `number` processes with `threads` each."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (number, threads, str(Path(folder) / "meeting"), size, answer)
        started = [context.Process(target=_process, args=(rank, *arguments)) for rank in range(number)]
        for process in started:
            process.start()
        found: list[float] = answer.get()
        for process in started:
            process.join()
    return statistics.median(found)


def main() -> None:
    """Measure, three times each in turn, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in asdict(Size()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    size = Size(**vars(parser.parse_args()))
    cases = {"one process, one thread": (1, 1), "one process, two threads": (1, 2), "two processes, one thread": (2, 1)}
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(3):
        for name, case in cases.items():
            found[name].append(measure(size, *case))
    least = {name: min(seconds) for name, seconds in found.items()}
    base = least["one process, two threads"]
    said = {
        "size": asdict(size),
        "ms": {name: round(1000 * seconds, 1) for name, seconds in least.items()},
        "against one process with two threads": {name: round(seconds / base, 2) for name, seconds in least.items()},
    }
    print(json.dumps(said, indent=1))


if __name__ == "__main__":
    main()
