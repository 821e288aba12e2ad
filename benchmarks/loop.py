"""Steps a second of our training loop against a plain hand-written one doing the same arithmetic.

python -m benchmarks.loop
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.measure import Step, interleave, versions
from tsadapt.config import RunConfig
from tsadapt.core import TSALoss
from tsadapt.models.networks import build
from tsadapt.objectives.objective import with_settings
from tsadapt.training.setup import Task, make_task
from tsadapt.training.trainer import Trainer

OUT = Path("paper/results/benchmarks/loop.json")

KINDS: dict[str, dict[str, Any]] = {"source-only": {}, "tsa": {"tsa": True}}
MANY = 1_000_000


def ours(task: Task, kind: str) -> Step:
    """A step of the trainer, with what a run does at every step (and logs at every fiftieth)."""
    config = with_settings(task.config, steps=MANY, **KINDS[kind])
    trainer = Trainer(config, build(task.architecture), task.source.train, task.target.train.unlabelled())
    trainer.fill_memory()
    return lambda: trainer.step(describe=trainer.at % config.log_every == 0)


def plain(task: Task, kind: str) -> Step:
    """The same by hand: index, forward, loss, backward, step."""
    model = build(task.architecture)
    source, target, c = task.source.train, task.target.train, task.config
    assert source.y is not None
    y, batch = source.y, c.batch_size or 1
    tsa = TSALoss(model.classes, model.dim, len(source), len(target))
    for memory in (tsa.source, tsa.target):
        memory.write(torch.arange(memory.size), torch.randn(memory.size, model.dim), torch.randint(10, (memory.size,)))
    optimizer = torch.optim.SGD(
        model.parameters(), lr=c.lr or 0.0, momentum=0.9, nesterov=True, weight_decay=c.weight_decay or 0.0
    )

    def step() -> None:
        i_s = torch.randint(len(source), (batch,))
        if kind == "source-only":
            loss = F.cross_entropy(model(source.tensor[i_s])[1], y[i_s])
        else:
            i_t = torch.randint(len(target), (batch,))
            f, _ = model(torch.cat([source.tensor[i_s], target.tensor[i_t]]))
            terms = tsa(model.head, f[:batch], y[i_s], i_s, f[batch:], i_t, progress=0.5)
            loss = terms["tsa"] + terms["mi"]
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        float(loss.detach())

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--out", type=Path, default=OUT, help="where the JSON goes")
    arguments = parser.parse_args()
    task = make_task(RunConfig("digits:uci", "digits:mnist-5k", device="cpu"))
    rows = []
    for kind in KINDS:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            steps = {"ours": ours(task, kind), "plain": plain(task, kind)}
            times = interleave(steps, rounds=arguments.rounds, seconds=30)
            ratio = times["plain"] / times["ours"]
            rate = {f"{name}_per_second": round(1 / seconds, 1) for name, seconds in times.items()}
            rows.append({"kind": kind, "threads": threads, **rate, "ours_to_plain": round(ratio, 3)})
            print(f"{kind:<12} {threads} threads: {rate}, ours at {ratio:.3f}x the plain loop's rate", flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    result = {"command": "python -m benchmarks.loop", "rows": rows, "versions": versions()}
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
