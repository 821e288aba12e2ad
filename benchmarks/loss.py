"""What TSA's statistics, loss and backward pass cost: ours against two literal implementations.

    python -m benchmarks.loss                        every table, printed and as JSON
    python -m benchmarks.loss --only sizes --out x.json

One step writes a batch of 32 of each domain into the memories, computes L_∞ and its gradients to the features and W.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import growth, literal, training_step
from benchmarks.measure import Step, in_fresh_process, interleave, peak_beyond_start, resident, versions
from tsadapt.core import FeatureMemory, transferable_cross_entropy

BATCH, BATCHES, STRENGTH = 32, 64, 0.2
OUT = Path("paper/results/benchmarks/loss.json")

MB = 1 << 20


@dataclass(frozen=True)
class Size:
    """Rows of both memories, classes C and features K."""

    source: int
    target: int
    classes: int
    dim: int


SIZES = {
    "Office-31": Size(2817, 795, 31, 256),
    "Office-Home": Size(2427, 4357, 65, 256),
    "VisDA": Size(20000, 55388, 12, 256),
    "345 classes": Size(20000, 50000, 345, 256),
    "Office-31, K=2048": Size(2817, 795, 31, 2048),
}
# The published expansion keeps several copies of n_t×C×K numbers: 17.7 GB each with 345 classes.
TOO_LARGE = {("345 classes", "published")}


class Problem:
    """Random features in the manner of ReLU, uniform labels, and a stream of batches of both domains."""

    def __init__(self, size: Size) -> None:
        generator = torch.Generator().manual_seed(0)

        def rows(n: int) -> tuple[Tensor, Tensor]:
            features = torch.randn(n, size.dim, generator=generator).relu_()
            return features, torch.randint(size.classes, (n,), generator=generator)

        self.size, self.generator = size, generator
        self.source, self.target = rows(size.source), rows(size.target)
        self.weight = torch.empty(size.classes, size.dim).uniform_(-1, 1, generator=generator).div_(size.dim**0.5)
        self.weight.requires_grad_()
        self.turn, self.batches = 0, [self.make_batch() for _ in range(BATCHES)]

    def batch(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """f_s (with gradient), y_s, i_s, f_t, ỹ_t, i_t: one of some batches made beforehand."""
        self.turn = (self.turn + 1) % BATCHES
        return self.batches[self.turn]

    def make_batch(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Draw a batch of both domains; nothing of this is timed."""
        i_s = torch.randperm(self.size.source, generator=self.generator)[:BATCH]
        i_t = torch.randperm(self.size.target, generator=self.generator)[:BATCH]
        f_s = self.source[0][i_s].requires_grad_()
        return f_s, self.source[1][i_s], i_s, self.target[0][i_t], self.target[1][i_t], i_t


def ours(problem: Problem) -> Step:
    """Two memories and the closed form."""
    size = problem.size
    source = FeatureMemory(size.source, size.dim, size.classes, second_moments=False)
    target = FeatureMemory(size.target, size.dim, size.classes)
    for memory, (features, labels) in ((source, problem.source), (target, problem.target)):
        for index in torch.split(torch.arange(memory.size), 4096):
            memory.write(index, features[index], labels[index])
    weight = problem.weight

    def step() -> None:
        f_s, y_s, i_s, f_t, y_t, i_t = problem.batch()
        source.write(i_s, f_s, y_s)
        target.write(i_t, f_t, y_t)
        loss = transferable_cross_entropy(f_s @ weight.T, y_s, weight, source, target, STRENGTH)
        torch.autograd.grad(loss, (f_s, weight))

    return step


def literally(
    mean: Callable[[Tensor, Tensor, int], Tensor], statistics: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
) -> Callable[[Problem], Step]:
    """All statistics from the whole memory at every step."""

    def make(problem: Problem) -> Step:
        (memory_s, labels_s), (memory_t, labels_t) = problem.source, problem.target
        weight, classes = problem.weight, problem.size.classes

        def step() -> None:
            f_s, y_s, i_s, f_t, y_t, i_t = problem.batch()
            memory_s[i_s], labels_s[i_s] = f_s.detach(), y_s
            memory_t[i_t], labels_t[i_t] = f_t, y_t
            mean_t, covariance = statistics(memory_t, labels_t, classes)
            shift = mean_t - mean(memory_s, labels_s, classes)
            loss = literal.literal_loss(f_s @ weight.T, y_s, weight, shift, covariance, STRENGTH)
            torch.autograd.grad(loss, (f_s, weight))

        return step

    return make


CONTESTANTS: dict[str, Callable[[Problem], Step]] = {
    "ours": ours,
    "sensible": literally(literal.sensible_mean, literal.sensible_statistics),
    "published": literally(literal.published_mean, literal.published_statistics),
}


def sizes_table(seconds: float) -> list[dict[str, object]]:
    """Time and memory of a step at every size, with one thread and with two."""
    rows: list[dict[str, object]] = []
    print(f"{'size':<18} threads {'ours ms':>8} {'sensible':>9} {'published':>10}   memory MB: ours sensible published")
    for name, size in SIZES.items():
        contestants = [c for c in CONTESTANTS if (name, c) not in TOO_LARGE]
        extra = {c: in_fresh_process("benchmarks.loss", "--peak", name, c) for c in contestants}
        for threads in (1, 2):
            torch.set_num_threads(threads)
            problem = Problem(size)
            steps = {c: CONTESTANTS[c](problem) for c in contestants}
            times = interleave(steps, rounds=30, seconds=seconds, repeat={"ours": 5})
            row: dict[str, object] = {"size": name, **vars(size), "threads": threads}
            for c in CONTESTANTS:
                memory = extra.get(c)
                row[f"{c}_ms"] = round(1000 * times[c], 3) if c in times else None
                row[f"{c}_extra_mb"] = None if memory is None else round(float(str(memory["bytes"])) / MB, 1)
                row[f"{c}_ratio"] = round(times[c] / times["ours"], 1) if c in times else None
            row["strategy"] = FeatureMemory(size.target, size.dim, size.classes).strategy
            rows.append(row)
            print(
                f"{name:<18} {threads:>7} {row['ours_ms']:>8} {row['sensible_ratio']:>8}x"
                f" {row['published_ratio']!s:>9}x"
                f"   {row['ours_extra_mb']!s:>15} {row['sensible_extra_mb']!s:>8} {row['published_extra_mb']!s:>9}"
                f"   {row['strategy']}",
                flush=True,
            )
    return rows


def print_peak(name: str, contestant: str) -> None:
    """Print the bytes one contestant needs beyond the rows it stores, as JSON."""
    problem = Problem(SIZES[name])
    before = resident()
    step = CONTESTANTS[contestant](problem)
    kept = resident() - before  # what ours keeps beside the rows; they are counted once, as the problem's own
    size = problem.size
    rows = 4 * size.dim * (size.source + size.target) if contestant == "ours" else 0
    print(json.dumps({"bytes": max(kept - rows, 0) + peak_beyond_start(step)}))


def markdown(result: dict[str, Any]) -> str:
    """The tables of a result, as Markdown."""
    lines = [f"Made by `{result['command']}`.", ""]
    for name in ("sizes", "growth", "step"):
        rows = result.get(name, [])
        if rows:
            lines += [f"## {name}", "", " | ".join(["", *rows[0], ""]).strip(), "|" + "---|" * len(rows[0])]
            lines += ["| " + " | ".join("–" if v is None else str(v) for v in row.values()) + " |" for row in rows]
            lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=["sizes", "growth", "step"], help="one of the tables instead of all")
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each row of the first table")
    parser.add_argument("--out", type=Path, default=OUT, help="where the JSON goes")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        print_peak(*arguments.peak)
        return
    tables = {"sizes": lambda: sizes_table(arguments.seconds), "growth": growth.table, "step": training_step.table}
    result = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    for name, table in tables.items():
        if arguments.only in (None, name):
            result[name] = table()
    result |= {"command": f"python -m benchmarks.loss --seconds {arguments.seconds:g}", "versions": versions()}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    arguments.out.with_suffix(".md").write_text(markdown(result), encoding="utf-8")
    print(f"written to {arguments.out} and {arguments.out.with_suffix('.md')}")


if __name__ == "__main__":
    main()
