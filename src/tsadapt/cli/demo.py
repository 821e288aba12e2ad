"""tsadapt demo: adapt digits included in the packages."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tsadapt.cli.options import WholeNumber

__all__ = ["Demo"]

RUNS: dict[str, dict[str, Any]] = {
    "source_only": {}, "adabn": {"method": "adabn"}, "mi": {"mi": True}, "tsa": {"tsa": True},
}  # fmt: skip
TITLES = {"source_only": "source-only", "adabn": "AdaBN", "mi": "+MI", "tsa": "+TSA"}


@dataclass(frozen=True)
class Demo:
    """Adapt a classifier of UCI digits (8×8, labelled) to MNIST digits (unlabelled): source-only, AdaBN, +MI, +TSA.

    The same network, data, steps and seed for all four; the last step is reported. About a minute on two cores.

    Example: tsadapt demo --out runs/demo
    """

    out: Path = Path("runs/demo")
    """Folder for the four runs, summary.json and demo.png."""
    steps: WholeNumber = 1500
    """Training steps of each run."""
    seed: WholeNumber = 0
    """Seed of everything random."""

    def __call__(self) -> int:
        """Train the four, compare them, and draw."""
        from rich.console import Console
        from rich.table import Table

        from tsadapt.config import RunConfig
        from tsadapt.files import write_json
        from tsadapt.objectives.objective import with_settings
        from tsadapt.report.figures import draw_comparison
        from tsadapt.runs.fit import Interrupted, train_run

        base = RunConfig("digits:uci", "digits:mnist-5k", steps=self.steps, seed=self.seed)
        found = {}
        for name, settings in RUNS.items():
            print(f"{TITLES[name]} …", file=sys.stderr, flush=True)
            try:
                found[name] = train_run(with_settings(base, **settings), self.out / name)[1]["last"]
            except Interrupted as stopped:
                print(f"tsadapt: {stopped}", file=sys.stderr)
                return 130
        table = Table(title="UCI digits → MNIST digits, last step")
        for column in ("", "target accuracy", "source accuracy", "proxy A-distance"):
            table.add_column(column, justify="left" if not column else "right")
        for name, last in found.items():
            accuracies = (f"{last[role]['accuracy']:.1%}" for role in ("target", "source"))
            table.add_row(TITLES[name], *accuracies, f"{last['proxy_a_distance'] or float('nan'):.2f}")
        Console().print(table)
        write_json(self.out / "summary.json", {name: last["target"]["accuracy"] for name, last in found.items()})
        classes = tuple(found["tsa"]["target"]["per_class_accuracy"])
        targets = {TITLES[name]: last["target"] for name, last in found.items()}
        draw_comparison(targets, classes, "UCI → MNIST digits", self.out / "demo.png")
        print(f"written: {self.out / 'summary.json'}, {self.out / 'demo.png'}")
        return 0
