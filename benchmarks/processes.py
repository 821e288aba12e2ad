"""Two and three processes against one: how long a step takes, and what of the processors, as ratios within one run.

python -m benchmarks.processes            # one process with two threads, against two and three with one each
python -m benchmarks.processes --steps 50 --batch 128

A step is timed by the clock, and by the processor time of all processes together: the clock is worth something where
nothing else runs, the other also where cores are shared. All ways take turns, and the least of a way's medians counts.
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


def _seconds(size: Size) -> list[tuple[float, float]]:
    """How long each step takes here, by the clock and of the processor."""
    config = with_settings(
        RunConfig("a", "b"), tsa=True, method="cdan", network="mcd-28", steps=size.steps + 3, batch_size=size.batch,
        target_batch_size=size.batch, lr=0.01, weight_decay=5e-4, device="cpu", separate_bn=False, precision="fp32",
    )  # fmt: skip
    torch.manual_seed(0)
    model = build(Architecture("mcd-28", CLASSES, 784))
    source, target = _domain(size.rows, 0, True), _domain(size.rows, 1, False)
    trainer = Trainer(config, model, source, target, processes=Processes.here())
    return [*_timed(trainer)][3:]


def _timed(trainer: Trainer) -> Iterator[tuple[float, float]]:
    while trainer.at < trainer.steps:
        began, ran = time.perf_counter(), time.process_time()
        trainer.step()
        yield time.perf_counter() - began, time.process_time() - ran


def _process(rank: int, number: int, threads: int, meeting: str, size: Size, answer: Any) -> None:
    torch.set_num_threads(threads)
    if number > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=number, timeout=timedelta(hours=1)
        )
    found = _seconds(size)
    answer.put((rank, found))
    if number > 1:
        distributed.destroy_process_group()


def measure(size: Size, number: int, threads: int) -> tuple[float, float]:
    """The median seconds of a step of `number` processes with `threads` each, and of the processors in all of them."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (number, threads, str(Path(folder) / "meeting"), size, answer)
        started = [context.Process(target=_process, args=(rank, *arguments)) for rank in range(number)]
        for process in started:
            process.start()
        found: dict[int, list[tuple[float, float]]] = dict(answer.get() for _ in started)
        for process in started:
            process.join()
    clock = statistics.median(seconds for seconds, _ in found[0])
    return clock, sum(statistics.median(busy for _, busy in steps) for steps in found.values())


def main() -> None:
    """Measure, each way in turn, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in asdict(Size()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--turns", type=int, default=3)
    given = vars(parser.parse_args())
    turns, size = given.pop("turns"), Size(**given)
    cases = {
        "one process, one thread": (1, 1), "one process, two threads": (1, 2), "two processes": (2, 1),
        "three processes": (3, 1),
    }  # fmt: skip
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(turns):
        for name, case in cases.items():
            found[name].append(measure(size, *case))
    said: dict[str, Any] = {"size": asdict(size), "turns": turns}
    for kind, what in enumerate(("clock", "processors")):
        least = {name: min(both[kind] for both in every) for name, every in found.items()}
        base = least["one process, two threads"]
        said[f"ms, {what}"] = {name: round(1000 * seconds, 1) for name, seconds in least.items()}
        said[f"against one process with two threads, {what}"] = {
            name: round(seconds / base, 2) for name, seconds in least.items()
        }
    print(json.dumps(said, indent=1))


if __name__ == "__main__":
    main()
