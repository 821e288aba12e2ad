"""tsadapt demo: the whole job on digits included in the packages."""

from dataclasses import dataclass
from pathlib import Path

from tsadapt.cli.options import WholeNumber

__all__ = ["Demo"]


@dataclass(frozen=True)
class Demo:
    """Adapt a classifier of UCI digits (8×8, labelled) to MNIST digits, as if these had no labels: tsadapt adapt.

    The labels of the MNIST digits come in at the end, to check the choice and the estimate. Less than two minutes on
    two cores.

    Example: tsadapt demo --out runs/demo
    """

    out: Path = Path("runs/demo")
    """Folder of the result."""
    steps: WholeNumber = 1500
    """Training steps of each candidate."""
    seed: WholeNumber = 0
    """Seed of everything random."""

    def __call__(self) -> int:
        """Adapt, and compare with the labels."""
        from rich.console import Console
        from rich.table import Table

        from tsadapt.adapt import adapt
        from tsadapt.cli.adapt import show_result
        from tsadapt.runs.folder import RunFolder

        command = f"tsadapt demo --out {self.out} --steps {self.steps} --seed {self.seed}"
        made = adapt(
            "digits:uci", "digits:mnist-5k", out=self.out, quiet=False, command=command, steps=self.steps,
            seed=self.seed,
        )  # fmt: skip
        table = Table(title="UCI digits → MNIST digits, judged by target labels (oracle)")
        for column in ("candidate", "target accuracy", "source accuracy", "proxy A-distance"):
            table.add_column(column, justify="left" if column == "candidate" else "right")
        for one in made.summary["candidates"]:
            last = RunFolder(self.out / one["run"]).metrics["last"]
            accuracies = (f"{last[role]['accuracy']:.1%}" for role in ("target", "source"))
            chosen = one["candidate"] == made.summary["chosen"]["candidate"]
            distance = f"{last['proxy_a_distance'] or float('nan'):.2f}"
            table.add_row(one["candidate"], *accuracies, distance, style="bold" if chosen else None)
        Console().print(table)
        show_result(made.summary, self.out)
        return 0
