"""A step of the loss with a long memory: seconds and peak memory, by how its rows are kept.

python -m benchmarks.long_memory --rows 1280000 --dim 2048 --classes 1000 --storage float16
"""

import argparse
import json
import statistics
import time
from typing import Any, get_args

import torch

from benchmarks.measure import peak
from tsadapt.config import MemoryStorage
from tsadapt.core import FeatureMemory, transferable_cross_entropy
from tsadapt.training.storage import row_storage, sized

__all__ = ["measure"]


def measure(rows: int, dim: int, classes: int, storage: str, batch: int = 64, steps: int = 5) -> dict[str, Any]:
    """The median step (write a batch, statistics, loss, backward), and what the process took of memory at its peak.

    A step is timed by the clock, and by the processor's time, which other programs on the same cores leave alone.
    """
    dtype, make = row_storage(storage)
    kept = None if make is None else make(rows, dim)
    target = FeatureMemory(rows, dim, classes, dtype=dtype, second_moments=False, rows=kept)
    source = FeatureMemory(classes, dim, classes, second_moments=False)
    drawn = torch.Generator().manual_seed(0)
    some = torch.randn(4096, dim, generator=drawn)
    source.write(torch.arange(classes), some[:1].expand(classes, -1), torch.arange(classes))
    for index in torch.split(torch.arange(rows), 4096):
        target.write(index, some[: len(index)], index % classes)
    weight = torch.randn(classes, dim, generator=drawn, requires_grad=True)
    seconds, busy = list[float](), list[float]()
    for _ in range(steps):
        index = torch.randint(rows, (batch,), generator=drawn)
        f, y = torch.randn(batch, dim, generator=drawn), torch.randint(classes, (batch,), generator=drawn)
        began, ran = time.perf_counter(), time.process_time()
        target.write(index, f, index % classes)
        loss = transferable_cross_entropy(f @ weight.T, y, weight, source, target, 0.25)
        loss.backward()  # type: ignore[no-untyped-call]
        weight.grad = None
        seconds.append(time.perf_counter() - began)
        busy.append(time.process_time() - ran)
    held = target.features.numel() * target.features.element_size()
    return {
        "rows": rows, "dim": dim, "classes": classes, "storage": storage, "threads": torch.get_num_threads(),
        "step, s": round(statistics.median(seconds), 3), "step, processor s": round(statistics.median(busy), 3),
        "rows take": sized(held), "peak of the process": sized(peak()),
    }  # fmt: skip


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("rows", 100_000), ("dim", 2048), ("classes", 1000), ("batch", 64), ("steps", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--storage", choices=get_args(MemoryStorage), default="float32")
    print(json.dumps(measure(**vars(parser.parse_args())), indent=1))


if __name__ == "__main__":
    main()
