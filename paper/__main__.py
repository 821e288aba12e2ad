"""tsadapt reproduce: the paper's tables and figures."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tsadapt.cli.options import Text, Whole, WholeNumber
from tsadapt.errors import UserError

__all__ = ["Reproduce"]


@dataclass(frozen=True)
class Reproduce:
    """Run (or resume) what is behind a table or figure of the paper, and set ours beside the published numbers.

    NAME is table1 to table5, table-memory, table-stress, table-bound, table-samples, figure-moons, figure-bias,
    figure-augmented, figure-neighbours, figure-sensitivity or figure-tsne. OUT gets NAME.md, NAME.json and NAME.png;
    what is in NAME.json is not run again.
    Example: tsadapt reproduce table5 --on office-caltech --jobs 2
    """

    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """The table or figure."""
    list: bool = False
    """Say which can run with the data that is here, and about how long each takes."""
    on: Text = None
    """Other data than the paper's: office-caltech or pacs (features), office-caltech-images (the photographs), digits
    (MNIST, USPS, SVHN), digits-small (what comes with the packages), or one of office31, office-home and visda."""
    frozen: bool = False
    """For the ResNet tables: train on features of the frozen backbone, a protocol of its own."""
    weights: Text = None
    """File with the backbone's weights, for photographs."""
    quick: bool = False
    """A small form for a first look, in OUT/quick: embedded digits, few steps, one task, one seed. Its numbers and
    pictures show what you will get, and mean nothing."""
    seeds: tuple[int, ...] = ()
    """Only these seeds."""
    rows: tuple[str, ...] = ()
    """Only these rows, by their titles on the page, such as "dann +tsa"."""
    columns: tuple[str, ...] = ()
    """Only these tasks, by their titles on the page, such as "m->u"."""
    steps: Whole = None
    """Another number of steps than the recipe's; kept in files of its own."""
    jobs: WholeNumber = 1
    """Runs side by side."""
    only_collect: bool = False
    """Train nothing: make the pages from what is kept."""
    out: Path = Path("runs/reproduce")
    """Where results go; the runs themselves are in OUT/work."""

    def run(self) -> int:
        """Reproduce, and print the page."""
        if self.list:
            from paper import status_lines

            print("\n".join(status_lines(self.name)))
            return 0
        if self.name is None:
            raise UserError("reproduce needs the name of a table or figure; tsadapt reproduce --list shows them.")
        for flag, value in (("--jobs", self.jobs), ("--steps", self.steps)):
            if value is not None and value < 1:
                raise UserError(f"{flag} is {value}, expected 1 or more.")
        if any(part.is_file() for part in (self.out, *self.out.parents)):
            raise UserError(f"--out {self.out} is or lies in a file, expected a folder.")
        there = next(part for part in (self.out, *self.out.absolute().parents) if part.is_dir())
        if not os.access(there, os.W_OK | os.X_OK):
            raise UserError(f"--out {self.out} cannot be written: choose another, or give yourself the right to.")
        from paper import Asked, reproduce
        from tsadapt.runs.fit import Interrupted

        asked = Asked(
            self.on, self.frozen, self.weights, self.seeds, self.rows, self.columns, self.steps, self.quick, self.jobs,
            self.only_collect,
        )  # fmt: skip
        try:
            written = reproduce(self.name, asked, self.out)
        except (Interrupted, KeyboardInterrupt) as stopped:
            raise KeyboardInterrupt("the same command goes on from here") from stopped
        print(written[-1].read_text(encoding="utf-8"))
        print(f"written: {', '.join(map(str, written))}", file=sys.stderr)
        return 0
