"""+TSA and +MI of this package beside a plain loop written like the official TSA code, on features, with matched seeds.

    python -m benchmarks.official_loop --out paper/results/benchmarks/official-loop.json

The plain loop shares nothing with the package but the data: raw features, t = 0 … T−1, a memory filled by a pass of its
own in training mode, statistics recomputed from the whole memory at every step, log(softmax), torch's own sampling. Its
variant "standardised" has inputs of mean 0 and deviation 1, as the package does. Target labels only judge, at the last
step. What is in the file is not run again.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.literal import literal_loss, sensible_mean, sensible_statistics
from benchmarks.measure import versions
from tsadapt import DomainAdaptationClassifier
from tsadapt.data.open import open_dataset
from tsadapt.data.types import match_labels
from tsadapt.files import write_json

__all__ = ["official_accuracy"]

STEPS, BATCH, DIM, LR = 1000, 64, 256, 0.01
LAMBDA0, BETA = 0.25, 0.1
LOOPS = ("official", "official, standardised", "ours")
TERMS = ("+MI", "+TSA")

Rows = tuple[Tensor, Tensor]


def official_accuracy(source: Rows, target: Rows, tsa: bool, seed: int, steps: int = STEPS) -> float:
    """Target accuracy of the plain loop at its last step."""
    torch.manual_seed(seed)
    (x_s, y_s), (x_t, y_t) = source, target
    classes = int(y_s.max()) + 1
    bottleneck = nn.Sequential(nn.Linear(x_s.shape[1], DIM), nn.BatchNorm1d(DIM), nn.ReLU())
    head = nn.Linear(DIM, classes)
    parameters = [*bottleneck.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=LR, momentum=0.9, weight_decay=1e-3, nesterov=True)
    with torch.no_grad():
        bank_s = torch.cat([bottleneck(x) for x in torch.split(x_s, BATCH) if len(x) > 1])
        bank_t = torch.cat([bottleneck(x) for x in torch.split(x_t, BATCH) if len(x) > 1])
        bank_s, bank_t = (
            torch.cat([bank, bank[: n - len(bank)]]) for bank, n in ((bank_s, len(x_s)), (bank_t, len(x_t)))
        )
        guess_t = head(bank_t).argmax(1)
    order_s, order_t = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    for t in range(steps):
        if len(order_s) < BATCH:
            order_s = torch.randperm(len(x_s))
        if len(order_t) < BATCH:
            order_t = torch.randperm(len(x_t))
        i_s, order_s = order_s[:BATCH], order_s[BATCH:]
        i_t, order_t = order_t[:BATCH], order_t[BATCH:]
        for group in optimizer.param_groups:
            group["lr"] = LR * (1 + 0.001 * t) ** -0.75
        f_s, f_t = bottleneck(torch.cat([x_s[i_s], x_t[i_t]])).split(BATCH)
        z_s, z_t = head(f_s), head(f_t)
        if tsa:
            bank_s[i_s], bank_t[i_t] = f_s.detach(), f_t.detach()
            guess_t[i_t] = z_t.detach().argmax(1)
            mu_t, sigma_t = sensible_statistics(bank_t, guess_t, classes)
            shift = mu_t - sensible_mean(bank_s, y_s, classes)
            loss = literal_loss(z_s, y_s[i_s], head.weight, shift, sigma_t, LAMBDA0 * t / steps)
        else:
            loss = nn.functional.cross_entropy(z_s, y_s[i_s])
        p = z_t.softmax(1)
        mean = p.mean(0)
        information = -(mean * mean.log()).sum() + (p * (p + 1e-12).log()).sum(1).mean()
        optimizer.zero_grad()
        (loss - BETA * information).backward()
        optimizer.step()
    bottleneck.eval()
    with torch.no_grad():
        return 100 * float((head(bottleneck(x_t)).argmax(1) == y_t).float().mean())


def _accuracy(loop: str, term: str, source: Rows, target: Rows, seed: int, steps: int) -> float:
    if loop == "ours":
        source_term = "tsa" if term == "+TSA" else "ce"
        ours = DomainAdaptationClassifier("source-only", source_term, ("mi",), steps=steps, random_state=seed)
        x, y = source[0].numpy(), source[1].numpy()
        return 100 * float(ours.fit(x, y, X_target=target[0].numpy()).score(target[0].numpy(), target[1].numpy()))
    if loop.endswith("standardised"):
        mean, scale = source[0].mean(0), source[0].std(0, correction=0)
        scale = torch.where(scale > 0, scale, 1.0)
        source, target = (((x - mean) / scale, y) for x, y in (source, target))
    return official_accuracy(source, target, term == "+TSA", seed, steps)


def _rows(name: str, classes: tuple[str, ...] | None = None) -> tuple[Rows, tuple[str, ...]]:
    domain = open_dataset(name).train
    classes = classes or domain.classes or ()
    return (domain.tensor.float(), match_labels(domain, classes)[0]), classes


def main(words: list[str] | None = None) -> None:
    """Measure what is missing, and print the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("official-loop.json"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--tasks", nargs="+", default=["pacs_photo>pacs_cartoon"], help="SOURCE>TARGET of features:")
    request = parser.parse_args(words)
    found: dict[str, Any] = {"command": "python -m benchmarks.official_loop", "versions": versions(), "runs": {}}
    if request.out.is_file():
        found["runs"] = json.loads(request.out.read_text(encoding="utf-8"))["runs"]
    torch.set_num_threads(1)
    for task in request.tasks:
        source, classes = _rows(f"features:{task.partition('>')[0]}")
        target, _ = _rows(f"features:{task.partition('>')[2]}", classes)
        for seed in range(request.seeds):
            for loop in LOOPS:
                for term in TERMS:
                    key = f"{task} | {loop} | {term} | {seed}"
                    if key not in found["runs"]:
                        found["runs"][key] = round(_accuracy(loop, term, source, target, seed, request.steps), 2)
                        write_json(request.out, found)
        for loop in LOOPS:
            for term in TERMS:
                values = [v for k, v in found["runs"].items() if k.startswith(f"{task} | {loop} | {term} |")]
                print(f"{task} {loop} {term}: {np.mean(values):.1f} ± {statistics.pstdev(values):.1f} {values}")


if __name__ == "__main__":
    main()
