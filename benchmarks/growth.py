"""How the time of a step grows with the memory, the classes and the features."""

import torch

from benchmarks.measure import Step, interleave
from tsadapt.core import FeatureMemory, transferable_cross_entropy

BATCH = 32
BASE = {"target": 50_000, "classes": 12, "dim": 256}
AXES = {"target": (10_000, 100_000, 1_000_000), "classes": (10, 65, 345), "dim": (64, 256, 1024, 2048)}


def make(target: int, classes: int, dim: int) -> tuple[FeatureMemory, Step]:
    """A target memory of that size, filled, and a step on it."""
    g = torch.Generator().manual_seed(0)
    source = FeatureMemory(2000, dim, classes, second_moments=False)
    memory = FeatureMemory(target, dim, classes)
    for m in (source, memory):
        for index in torch.split(torch.arange(m.size), 4096):
            features = torch.randn(len(index), dim, generator=g)
            m.write(index, features, torch.randint(classes, (len(index),), generator=g))
    weight = torch.randn(classes, dim, generator=g).div_(dim**0.5).requires_grad_()

    def step() -> None:
        f_s = torch.randn(BATCH, dim, generator=g, requires_grad=True)
        y_s, y_t = (torch.randint(classes, (BATCH,), generator=g) for _ in range(2))
        source.write(torch.randint(source.size, (BATCH,), generator=g), f_s, y_s)
        memory.write(torch.randint(target, (BATCH,), generator=g), torch.randn(BATCH, dim, generator=g), y_t)
        loss = transferable_cross_entropy(f_s @ weight.T, y_s, weight, source, memory, 0.2)
        torch.autograd.grad(loss, (f_s, weight))

    return memory, step


def table() -> list[dict[str, object]]:
    """Milliseconds of a step along each axis, the others at their base."""
    torch.set_num_threads(2)
    rows: list[dict[str, object]] = []
    for axis, values in AXES.items():
        made = {value: make(**{**BASE, axis: value}) for value in values}
        times = interleave({str(v): step for v, (_, step) in made.items()}, rounds=60, seconds=60)
        for value, (memory, _) in made.items():
            ms, ratio = 1000 * times[str(value)], times[str(value)] / times[str(values[0])]
            sizes = {**BASE, axis: value}
            rows.append(
                {"axis": axis, **sizes, "ms": round(ms, 3), "ratio": round(ratio, 2), "strategy": memory.strategy}
            )
            print(f"{axis:<8} {value:>9,}  {ms:8.2f} ms  {ratio:5.2f}x  {memory.strategy}  {sizes}", flush=True)
    return rows
