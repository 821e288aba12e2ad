"""A whole training step (forward, backward, optimizer) with L_∞ in place of the cross-entropy."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.measure import Step, interleave
from tsadapt.core import TSALoss, mutual_information_loss

BATCHES = 64


@dataclass(frozen=True)
class Case:
    """A network up to its last linear layer, its input, and the sizes of the problem."""

    body: Callable[[], nn.Module]
    shape: tuple[int, ...]
    dim: int
    classes: int
    batch: int
    source: int
    target: int


def digit_body() -> nn.Module:
    """MCD's network for 28×28 digits up to its last layer (Saito et al., 2018)."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 48, 5), nn.BatchNorm2d(48), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Dropout(), nn.Linear(768, 100), nn.BatchNorm1d(100), nn.ReLU()),
        *(nn.Dropout(), nn.Linear(100, 100), nn.BatchNorm1d(100), nn.ReLU()),
    )


CASES = {
    "28×28 digit network": Case(digit_body, (1, 28, 28), 100, 10, 64, 7_291, 60_000),
    "Linear–BN–ReLU–Linear": Case(
        lambda: nn.Sequential(nn.Linear(1280, 256), nn.BatchNorm1d(256), nn.ReLU()), (1280,), 256, 65, 64, 2_427, 4_357
    ),
}


def make(case: Case, kind: str) -> Step:
    """A training step: "source" never forwards the target; "ce" and "tsa" forward both domains and use MI."""
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(0)
    body, head = case.body(), nn.Linear(case.dim, case.classes)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.01, momentum=0.9, nesterov=True)
    tsa = TSALoss(case.classes, case.dim, case.source, case.target)
    for memory in (tsa.source, tsa.target):
        for index in torch.split(torch.arange(memory.size), 4096):
            features = torch.randn(len(index), case.dim, generator=g)
            memory.write(index, features, torch.randint(case.classes, (len(index),), generator=g))
    x = torch.randn(2 * case.batch, *case.shape, generator=g)

    def rows(n: int) -> Tensor:
        return torch.randperm(n, generator=g)[: case.batch]

    # Labels and rows come with the data, as from a loader: no row is twice in a batch, and drawing them is not timed.
    batches = [
        (torch.randint(case.classes, (case.batch,), generator=g), rows(case.source), rows(case.target))
        for _ in range(BATCHES)
    ]
    turns = cycle(batches)

    def losses(f: Tensor, y: Tensor, i_s: Tensor, i_t: Tensor) -> Tensor:
        f_s, f_t = torch.split(f, case.batch)
        if kind == "ce":
            logits_s, logits_t = head(f_s), head(f_t)
            return F.cross_entropy(logits_s, y) + 0.1 * mutual_information_loss(logits_t)
        terms = tsa(head, f_s, y, i_s, f_t, i_t, progress=0.5)
        return torch.stack([*terms.values()]).sum()

    def step() -> None:
        y, i_s, i_t = next(turns)
        loss = F.cross_entropy(head(body(x[: case.batch])), y) if kind == "source" else losses(body(x), y, i_s, i_t)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def table() -> list[dict[str, object]]:
    """Milliseconds of a step, and TSA's as a ratio to the two others."""
    rows: list[dict[str, object]] = []
    for name, case in CASES.items():
        for threads in (1, 2):
            torch.set_num_threads(threads)
            times = interleave({k: make(case, k) for k in ("source", "ce", "tsa")}, rounds=400, seconds=25)
            to_ce, to_source = times["tsa"] / times["ce"], times["tsa"] / times["source"]
            ms = {f"{k}_ms": round(1000 * t, 3) for k, t in times.items()}
            rows.append(
                {"network": name, "threads": threads, **ms, "to_ce": round(to_ce, 3), "to_source": round(to_source, 3)}
            )
            print(
                f"{name:<22} {threads} threads: source-only {1000 * times['source']:.2f} ms, CE+MI"
                f" {1000 * times['ce']:.2f} ms, L_∞+MI {1000 * times['tsa']:.2f} ms = {to_ce:.3f}x CE+MI,"
                f" {to_source:.2f}x source-only",
                flush=True,
            )
    return rows
