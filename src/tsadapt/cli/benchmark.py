"""tsadapt benchmark: methods × seeds × tasks."""

import dataclasses
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from tsadapt.cli.fit import option_group, set_settings
from tsadapt.cli.options import MaybeText, Texts, WholeNumber, given_settings, setting_options
from tsadapt.config import DATA, NETWORK, OBJECTIVE, OPTIMISATION, RUN
from tsadapt.errors import UserError, printable

__all__ = ["Benchmark"]

NOT_HERE = (
    "source_free",
    "target_share",
    "target_draw",
    "target_labels",
    "use_target_labels",
    "method",
    "source_term",
    "target_term",
    "seed",
)
"""Settings of fit that a benchmark sets itself, or does without."""

METHODS = "source-only,adabn,mi,tsa,cdan+e,cdan+e+tsa"


def _groups() -> list[tuple[str, Any, Any]]:
    options = setting_options()
    set_text = "Set one term only, where several share a setting's name; may be repeated."
    named = Annotated[Texts, tyro.conf.arg(help=set_text, help_behavior_hint="", metavar="TERM.NAME=VALUE")]
    options[OBJECTIVE] = [("set", named, ()), *options[OBJECTIVE]]
    kept = {title: [one for one in options[title] if one[0] not in NOT_HERE] for title in options}
    return [option_group(title, kept[title]) for title in (DATA, OBJECTIVE, NETWORK, OPTIMISATION, RUN)]


Settings = dataclasses.make_dataclass("Settings", _groups(), frozen=True)


@dataclass(frozen=True)
class Benchmark(Settings):  # type: ignore[misc,valid-type]
    """Compare methods on tasks of your own: each method on each task with each seed; the same command resumes.

    OUT gets benchmark.md (mean ± deviation, rank, intervals), benchmark.json, benchmark.csv (a line for every run) and
    benchmark.tex. More methods, tasks or seeds in the same OUT train only what is new. Target labels are needed, and
    only measure. Settings of fit hold for every method.

    Example: tsadapt benchmark --task a=photos/labelled:photos/new --methods source-only,adabn,cdan+e+tsa --out compared
    """

    task: Annotated[Texts, tyro.conf.arg(metavar="NAME=SOURCE:TARGET", help_behavior_hint="(required)")] = ()
    """A labelled source and a labelled target, under a name. Repeatable."""
    methods: Annotated[str, tyro.conf.arg(metavar="A,B,…")] = METHODS
    """Methods, presets and terms, with commas; METHOD+mi, METHOD+tsa and METHOD+TERM add to a method."""
    variant: Annotated[Texts, tyro.conf.arg(metavar="NAME=METHOD,SETTING=VALUE,…", help_behavior_hint="")] = ()
    """One more method, with settings of its own: small=cdan+e+tsa,lambda0=0.1. Repeatable."""
    seeds: Annotated[str, tyro.conf.arg(metavar="A,B,…")] = "0,1,2"
    """Seeds of everything random, with commas."""
    baseline: Annotated[MaybeText, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: the first method)")] = (
        None
    )
    """The method that the others are compared with."""
    metric: Literal["accuracy", "mean-class-accuracy"] = "accuracy"
    """What the table shows."""
    out: Annotated[Path, tyro.conf.arg(metavar="PATH")] = Path("benchmark")
    """Folder of the tables and runs."""
    jobs: WholeNumber = 1
    """Runs side by side."""
    quiet: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Hide progress."""

    def __call__(self) -> int:
        """Train, compare, and print the table."""
        seeds = self._seeds()
        groups = [getattr(self, f.name) for f in fields(Settings)]
        settings = given_settings(groups)
        for name, text in set_settings(getattr(self, OBJECTIVE).set).items():
            from tsadapt.objectives.objective import setting_named

            settings[name] = setting_named(name).parse(text)
        from rich.console import Console
        from rich.table import Table

        from tsadapt.benchmark import benchmark
        from tsadapt.benchmark.tables import grid
        from tsadapt.benchmark.tasks import parse_task, parse_variant

        variants: dict[str, dict[str, Any]] = {}
        for text in self.variant:
            name, own = parse_variant(text)
            if name in variants:
                raise UserError(f"Two variants are called {name}: give each a name of its own.")
            variants[name] = own
        tasks = [parse_task(text) for text in self.task]
        methods = [*dict.fromkeys(name.strip() for name in self.methods.split(",") if name.strip())]
        made = benchmark(
            tasks, methods, seeds=seeds, variants=variants, baseline=self.baseline, metric=self.metric, out=self.out,
            jobs=self.jobs, quiet=self.quiet, **settings,
        )  # fmt: skip
        head, rows = grid(made.scores, [task.name for task in tasks], made.results["baseline"])
        table = Table(box=None, pad_edge=False)
        for i, name in enumerate(head):
            table.add_column(printable(name), justify="right" if i else "left")
        for row in rows:
            table.add_row(*map(printable, row))
        console = Console(markup=False, highlight=False)
        (console if console.is_terminal else Console(width=200, markup=False, highlight=False)).print(table)
        if any(cell.endswith(" *") for row in rows for cell in row):
            print("* best: above every other method with a 95 % interval over seeds that leaves out zero")
        for what, why in made.results["failed"].items():
            print(printable(f"failed: {what}: {why}"))
        print(printable(f"written: {made.folder / 'benchmark.md'}, .json, .csv, .tex"))
        return 0

    def _seeds(self) -> list[int]:
        try:
            return [int(word) for word in self.seeds.split(",") if word.strip()]
        except ValueError:
            raise UserError(f"--seeds is {self.seeds!r}, expected whole numbers with commas, such as 0,1,2.") from None
