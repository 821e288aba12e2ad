"""What --compile and --precision bf16 change: accuracy on a real task, and the time of a step beside plain float32.

    python -m benchmarks.compile                    # both parts; about half an hour on two cores
    python -m benchmarks.compile --parts steps --networks small-16 mcd-28

Accuracy is of whole runs, UCI digits → MNIST-5k. Steps are those of one process in which all ways take turns, on the
same batches: of the digit networks, and of a ResNet-50 that is trained as a whole on Office-31. Their time is the
processor's, so that a busy machine does as well; with OMP_NUM_THREADS=1 it is the clock's on an idle one.
"""

import argparse
import gc
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import interleave, versions
from tsadapt.config import RunConfig
from tsadapt.objectives.objective import with_settings
from tsadapt.runs.fit import train_run
from tsadapt.training.runtime import has_fast_bf16, keep_freed_memory
from tsadapt.training.setup import make_task, make_trainer

WAYS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp32, compiled": {"compile": True},
    "bf16": {"precision": "bf16"},
    "bf16, compiled": {"precision": "bf16", "compile": True},
}
DIGITS = ("digits:uci", "digits:mnist-5k")
RESNET = "paper/encoders/resnet50_v1.py:resnet50_v1"
NETWORKS: dict[str, tuple[tuple[str, str], dict[str, Any]]] = {
    "small-16": (DIGITS, {"tsa": True}),
    "mcd-28": (DIGITS, {"tsa": True, "network": "mcd-28", "batch_size": 128}),
    "ResNet-50": (
        ("office31:dslr", "office31:webcam"),
        {"method": "cdan", "mi": True, "backbone": RESNET, "freeze_backbone": False, "batch_size": 8, "workers": 1},
    ),
}


def accuracy(seeds: int, steps: int | None) -> dict[str, Any]:
    """Target accuracy of whole runs, each way with the same seeds."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for seed in range(seeds):
        for way, settings in WAYS.items():
            config = with_settings(
                RunConfig(*DIGITS), tsa=True, seed=seed, steps=steps, device="cpu", **{"precision": "fp32"} | settings
            )
            with tempfile.TemporaryDirectory() as folder:
                _, metrics = train_run(config, Path(folder) / "run", quiet=True)
            found[way].append(round(100 * metrics["last"]["target"]["accuracy"], 2))
            print(f"seed {seed}, {way}: {found[way][-1]}%", flush=True)
    means = {way: round(statistics.mean(values), 2) for way, values in found.items()}
    return {"task": " → ".join(DIGITS), "terms": "tsa + mi", "percent": found, "means": means}


def steps_of(name: str, rounds: int, weights: str | None) -> dict[str, Any]:
    """The median step each way, in turns, its ratio to plain float32, and how long the first one took on the clock."""
    (source, target), settings = NETWORKS[name]
    more = {"weights": weights or "none"} if "backbone" in settings else {}
    trainers, first = {}, {}
    for way, changes in WAYS.items():
        config = with_settings(
            RunConfig(source, target), steps=10_000, device="cpu", **{"precision": "fp32"} | settings | more | changes
        )
        trainers[way] = make_trainer(make_task(config))
        trainers[way].fill_memory()
        began = time.perf_counter()
        trainers[way].step()
        first[way] = round(time.perf_counter() - began, 2)
    seconds = interleave(
        {way: trainer.step for way, trainer in trainers.items()}, rounds, 3600, clock=time.process_time
    )
    config = trainers["fp32"].config
    trainers.clear()
    gc.collect()  # ends the processes that decode images
    return {
        "rows of each domain": config.batch_size,
        "objective": config.objective,
        "ms of processor time": {way: round(1000 * value, 1) for way, value in seconds.items()},
        "times as fast": {way: round(seconds["fp32"] / value, 2) for way, value in seconds.items()},
        "seconds of the first step": first,
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=["accuracy", "steps"], default=["accuracy", "steps"])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=[*NETWORKS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="steps of a run whose accuracy is measured (default: the network's)")
    parser.add_argument("--rounds", type=int, default=30, help="steps of each way, in turns; a third for ResNet-50")
    parser.add_argument("--weights", help="a file of ResNet-50's weights (default: random ones, which are as fast)")
    parser.add_argument("--out", type=Path, default=Path("paper/results/benchmarks/compile.json"))
    arguments = parser.parse_args()
    keep_freed_memory()
    result = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}
    result |= {"command": "python -m benchmarks.compile", "versions": versions(), "threads": torch.get_num_threads()}
    result["bf16 in hardware"] = has_fast_bf16(torch.device("cpu"))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)

    def write() -> None:
        arguments.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    if "steps" in arguments.parts:
        for name in arguments.networks:
            rounds = arguments.rounds if name != "ResNet-50" else max(arguments.rounds // 3, 3)
            result.setdefault("steps", {})[name] = steps_of(name, rounds, arguments.weights)
            print(name, json.dumps(result["steps"][name], ensure_ascii=False), flush=True)
            write()
    if "accuracy" in arguments.parts:
        result["accuracy"] = accuracy(arguments.seeds, arguments.steps)
        print(json.dumps(result["accuracy"], ensure_ascii=False))
        write()
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
