"""What a step of each method costs, as a ratio to the plain source-only step that never forwards the target.

    python -m benchmarks.methods              measure, and put the table into docs/methods.md
    python -m benchmarks.methods --table      only make the table of what was measured

Every registered method, plain and with TSA and MI, on 1,280-d features (bottleneck 256, 7 classes, batch 64) and on the
16×16 digits; one run, interleaved, medians, one thread and two.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import Step, interleave, versions
from tsadapt.config import RunConfig
from tsadapt.objectives.base import METHODS
from tsadapt.objectives.objective import with_settings
from tsadapt.report.tables import fill
from tsadapt.training.setup import make_task, make_trainer

COMMAND = "python -m benchmarks.methods"
PAGE = Path("docs/methods.md")
VARIANTS: dict[str, dict[str, Any]] = {"plain": {}, "+TSA": {"tsa": True}}


def vectors(folder: Path) -> RunConfig:
    rng = np.random.default_rng(0)
    for name, n in (("source", 1670), ("target", 2344)):
        y = np.arange(n) % 7
        np.savez(folder / f"{name}.npz", x=rng.normal(size=(n, 1280)) + y[:, None] / 7, y=y)
    return RunConfig(str(folder / "source.npz"), str(folder / "target.npz"))


def steps(base: RunConfig) -> dict[str, Step]:
    """A step of every method, plain and with TSA."""
    made: dict[str, Step] = {}
    for name in ("source-only", *(name for name in METHODS if name != "source-only")):
        for variant, change in VARIANTS.items():
            config = with_settings(base, method=name, steps=100_000, device="cpu", **change)
            trainer = make_trainer(make_task(config))
            trainer.fill_memory()
            made[f"{name} {variant}"] = trainer.step
    return made


def table(rows: list[dict[str, Any]]) -> str:
    """Ratios to the plain source-only step, plain / +TSA, as Markdown."""
    places = [*dict.fromkeys((row["data"], row["threads"]) for row in rows)]
    lines = ["| | " + " | ".join(f"{data}, {threads} thread{'s' * (threads > 1)}" for data, threads in places) + " |"]
    lines.append("|---|" + "---|" * len(places))
    ratio = {(row["data"], row["threads"], row["method"]): f"{row['to_source_only']:.1f}" for row in rows}
    for method in dict.fromkeys(row["method"].rsplit(" ", 1)[0] for row in rows):
        cells = (" / ".join(ratio[(*place, f"{method} {variant}")] for variant in VARIANTS) for place in places)
        lines.append(f"| `{method}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_table(result: Path, page: Path) -> None:
    """Put the table of what was measured into a page."""
    rows = json.loads(result.read_text(encoding="utf-8"))["rows"]
    page.write_text(fill(page.read_text(encoding="utf-8"), COMMAND, table(rows)), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=40.0, help="time for each table")
    parser.add_argument("--out", type=Path, default=Path("paper/results/benchmarks/methods-cost.json"))
    parser.add_argument("--table", action="store_true", help="only make the table")
    arguments = parser.parse_args()
    if arguments.table:
        write_table(arguments.out, PAGE)
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data = {"1,280-d features": vectors(Path(folder)), "16×16 digits": RunConfig("digits:uci", "digits:mnist-5k")}
        for task, base in data.items():
            for threads in (1, 2):
                torch.set_num_threads(threads)
                times = interleave(steps(base), rounds=200, seconds=arguments.seconds)
                first = times["source-only plain"]
                for name, seconds in times.items():
                    row = {"data": task, "threads": threads, "method": name, "ms": round(1000 * seconds, 2)}
                    rows.append({**row, "to_source_only": round(seconds / first, 2)})
                    print(" ".join(str(value) for value in rows[-1].values()), flush=True)
    result = {"command": COMMAND, "rows": rows, "versions": versions()}
    arguments.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_table(arguments.out, PAGE)


if __name__ == "__main__":
    main()
