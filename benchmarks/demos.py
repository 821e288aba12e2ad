"""How steady the demo is: `tsadapt demo` with several seeds, on one thread and on two.

    python -m benchmarks.demos [--seeds 0 1 … 9] [--threads 1 2]

The accuracies of all candidates, by target labels (oracle), and which one was chosen without them. Demos that
demos.json has for the same version and settings are not run again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import versions
from tsadapt.files import write_json
from tsadapt.presets import PRESETS
from tsadapt.runs.folder import RunFolder

RESULTS = Path(__file__).parents[1] / "paper" / "results" / "benchmarks" / "demos.json"


def demo(seed: int, threads: int) -> dict[str, Any]:
    """The demo in a process of its own: the chosen candidate, the accuracy of each in percent, and seconds."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "demo"
        command = [sys.executable, "-m", "tsadapt", "demo", "--seed", str(seed), "--out", str(out)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        subprocess.run(command, env=environment, capture_output=True, check=True)
        seconds = time.monotonic() - began
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        accuracies = {
            one["candidate"]: round(100 * RunFolder(out / one["run"]).metrics["last"]["target"]["accuracy"], 1)
            for one in summary["candidates"]
        }
    chosen = summary["chosen"]["candidate"]
    return {
        "chosen": chosen, "accuracy": accuracies[chosen], "accuracies": accuracies,
        "estimate": {name: round(100 * value, 1) for name, value in summary["estimated_accuracy"].items()},
        "seconds": round(seconds, 1),
    }  # fmt: skip


def main() -> None:
    """Run what is missing, print a table, and keep everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(10)])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    settings = {"presets": {name: dict(preset.settings) for name, preset in PRESETS.items()}, **versions()}
    settings = json.loads(json.dumps(settings))
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    if found.get("settings") != settings:
        found = {"command": "python -m benchmarks.demos", "settings": settings, "demos": {}}
    for threads in given.threads:
        for seed in given.seeds:
            key = f"seed {seed}, {threads} thread{'s' * (threads != 1)}"
            if key not in found["demos"]:
                found["demos"][key] = demo(seed, threads)
                write_json(RESULTS, found)
            one = found["demos"][key]
            print(f"{key}: {one['chosen']} {one['accuracy']} %, {one['accuracies']}", flush=True)
    worst = min(found["demos"].items(), key=lambda item: item[1]["accuracy"])
    print(f"worst chosen: {worst[1]['accuracy']} % ({worst[0]}, {worst[1]['chosen']})")


if __name__ == "__main__":
    main()
