"""Peak memory and time of whole runs with many classes, each in a process of its own.

python -m benchmarks.many_classes                      20,000 rows of 10,000 classes: must stay below 2 GB
python -m benchmarks.many_classes --classes 1000 --rows 20000

A run makes one pass over the data unless told otherwise: memory that has not been written takes no place yet.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import in_fresh_process, peak, versions

OBJECTIVES: dict[str, dict[str, bool]] = {"source-only": {}, "mi": {"mi": True}, "tsa": {"tsa": True}}
DIM, BATCH = 256, 64
OUT = Path("paper/results/benchmarks/many-classes.json")


def rows_of(rows: int, classes: int, shift: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Clusters in 256 dimensions, one a class, and their labels."""
    centres = np.random.default_rng(0).normal(size=(classes, DIM)).astype(np.float32)
    y = np.arange(rows) % classes
    noise = np.random.default_rng(seed).normal(size=(rows, DIM)).astype(np.float32)
    return centres[y] + 0.5 * noise + np.float32(shift), y


def measure(objective: str, rows: int, classes: int, steps: int, candidates: int = 1) -> dict[str, object]:
    """Train here; the peak of this process, the time of a step and of all the rest, and the size of the folder."""
    import tsadapt
    from tsadapt.training.trainer import Trainer

    source, target = rows_of(rows, classes, 0.0, 1), rows_of(rows, classes, 0.3, 2)
    times: list[float] = []
    plain = Trainer.step

    def timed(self: Trainer, describe: bool = False) -> dict[str, object]:
        start = time.perf_counter()
        found = plain(self, describe)
        times.append(time.perf_counter() - start)
        return found

    Trainer.step = timed  # type: ignore[method-assign]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        settings: dict[str, Any] = {"candidates": candidates, "steps": steps, "batch_size": BATCH, "log_every": 5}
        model = tsadapt.fit(source, target, out=out, **(settings | OBJECTIVES[objective]))
        whole = time.perf_counter() - start
        files = {path.name: path.stat().st_size for path in out.rglob("*") if path.is_file()}
        accuracy = model.metrics["last"]["source"]["accuracy"]
    return {
        "objective": objective,
        "rows": rows,
        "classes": classes,
        "steps": steps,
        "peak_mb": round(peak() / 2**20),
        "step_ms": round(1000 * float(np.median(times)), 1),
        "beside_steps_s": round(whole - sum(times), 1),
        "metrics_kb": round(files["metrics.json"] / 1024),
        "folder_mb": round(sum(files.values()) / 2**20, 1),
        "source_accuracy": round(accuracy, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help="rows of each domain")
    parser.add_argument("--classes", type=int, default=10_000)
    parser.add_argument("--steps", type=int, help="one pass over the data unless given")
    parser.add_argument("--candidates", type=int, default=1, help="as fit")
    parser.add_argument("--out", type=Path, default=OUT, help="where the JSON goes")
    parser.add_argument("--only", choices=[*OBJECTIVES], help=argparse.SUPPRESS)
    given = parser.parse_args()
    sizes = (given.rows, given.classes, given.steps or math.ceil(given.rows / BATCH), given.candidates)
    if given.only:
        print(json.dumps(measure(given.only, *sizes)))
        return
    words = [f"--{name}={value}" for name, value in zip(("rows", "classes", "steps", "candidates"), sizes, strict=True)]
    found = []
    for objective in OBJECTIVES:
        row = in_fresh_process("benchmarks.many_classes", *words, "--only", objective)
        if row is None:
            sys.exit(f"{objective}: its process failed")
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
        found.append(row)
    result = {"command": f"python -m benchmarks.many_classes {' '.join(words)}", "runs": found, "versions": versions()}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {given.out}")


if __name__ == "__main__":
    main()
