"""tsadapt sweep: hyper-parameters without target labels."""

import contextlib
import hashlib
import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from tsadapt.cli.fit import Fit, objective_options, option_group
from tsadapt.cli.options import File, MaybeText, Texts, Whole, WholeNumber, setting_options
from tsadapt.config import DATA, OBJECTIVE, RunConfig
from tsadapt.errors import UserError, counted, printable

if TYPE_CHECKING:
    from tsadapt.sweep.plan import Axes, Planned

__all__ = ["Sweep"]

TRIALS = 25
"""Runs of a random search or optuna's, unless told."""


_OPTIONS = setting_options(holdout="0.1", source_term="tsa", target_terms="mi")
_, DataOptions, DATA_OPTIONS = option_group(DATA, _OPTIONS[DATA])
_, ObjectiveOptions, OBJECTIVE_OPTIONS = option_group(OBJECTIVE, objective_options() + _OPTIONS[OBJECTIVE])


@dataclass(frozen=True)
class Sweep(Fit):
    """Train with several settings, and choose among the results without target labels; the same command resumes.

    Every combination of the --grid values is trained (by default the paper's λ0 × β, with TSA), as well as source-only.
    OUT/choice.json says which is chosen, OUT/scores.csv has all scores.

    Example: tsadapt sweep digits:uci digits:mnist-5k --grid lambda0=0.1,0.25 --grid beta=0.05,0.1 --jobs 2
    """

    data: DataOptions = DATA_OPTIONS  # type: ignore[valid-type]
    objective: ObjectiveOptions = OBJECTIVE_OPTIONS  # type: ignore[valid-type]
    out: File = None
    """Folder of the sweep. (default: runs/sweep-HASH)"""
    grid: Annotated[Texts, tyro.conf.arg(metavar="NAME=A,B,…", help_behavior_hint="(default: the paper's λ0 × β)")] = ()
    """A setting of fit and its values, or a range to draw from (NAME=LOW..HIGH or NAME=LOW..HIGH:log). Repeatable."""
    trials: Whole = None
    """Draw this many combinations instead of training all (25 with --search random or optuna)."""
    search: Annotated[
        Literal["grid", "random", "optuna"] | None,
        tyro.conf.arg(metavar="{grid,random,optuna}", help_behavior_hint="(default: grid; random with --trials)"),
    ] = None
    """How combinations are found: all, at random, or proposed by optuna (extra: sweep)."""
    storage: Annotated[
        MaybeText, tyro.conf.arg(metavar="URL", help_behavior_hint="(default: sqlite:///OUT/optuna.db)")
    ] = None
    """optuna's storage, to share a sweep between machines."""
    jobs: WholeNumber = 1
    """Runs side by side."""
    by: Annotated[str, tyro.conf.arg(metavar="NAME")] = "consensus"
    """Validator to choose by (tsadapt list validators)."""
    print_commands: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Print a command for each run, which resumes it, for any scheduler; the same sweep without this then chooses."""
    no_guard: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Do not exclude collapsed candidates."""

    def to_config(self, **defaults: Any) -> RunConfig:
        """The config that all runs share: TSA and a tenth of the source held out, unless told otherwise."""
        given = self._file_settings() | self.given()
        if given.get("source_free"):
            raise UserError("A sweep compares runs with source-only, which needs the source: use fit --source-free.")
        if given.get("use_target_labels"):
            raise UserError("A sweep chooses without target labels: leave out --use-target-labels, or use tsadapt fit.")
        told = {"tsa", "mi", "source_term", "target_terms"} & {name for name, value in given.items() if value}
        return super().to_config(holdout=0.1, **({} if told else {"tsa": True}), **defaults)

    def __call__(self) -> int:
        """Train, choose, and say what was chosen."""
        from tsadapt.objectives.objective import uses
        from tsadapt.runs.folder import SweepFolder
        from tsadapt.selection.select import check_selector
        from tsadapt.sweep.plan import PAPER_GRID, parse_axes
        from tsadapt.training.setup import one_spelling

        base = one_spelling(self.to_config())
        check_selector(self.by)
        self._check_flags()
        given = self.grid or tuple(text for text in PAPER_GRID if uses(base, text.partition("=")[0]))
        axes = parse_axes(given)
        for name in [name for name in axes if name in self.given()]:
            print(f"note: --grid sweeps {name}: the value given beside it is for source-only alone.", file=sys.stderr)
        out = self.out or Path("runs") / f"sweep-{_hash(base, given)}"
        if out.exists() and not out.is_dir():
            raise UserError(f"--out {out} is a file, expected a folder.")
        # With --storage, several sweeps share a folder, and optuna deals the work out.
        with contextlib.nullcontext() if self.storage else SweepFolder(out).lock():
            _check_folder(out, base)
            if self.print_commands:
                self._print_commands(base, axes, out)
                return 0
            self._train_and_choose(base, axes, out)
        return 0

    def _train_and_choose(self, base: RunConfig, axes: "Axes", out: Path) -> None:
        from tsadapt.models.encoders import names_file
        from tsadapt.report.selection import print_choice
        from tsadapt.runs.folder import RunFolder, SweepFolder
        from tsadapt.selection.select import choose
        from tsadapt.sweep.choice import read_candidates, reference_among, write_choice
        from tsadapt.sweep.plan import SOURCE_ONLY, Planned

        reference = Planned.of(base, SOURCE_ONLY, out)
        planned, failed = self._train(base, axes, reference, out)
        done = [one for one in planned if one.done]
        if failed:
            print(f"{counted(len(failed), 'run')} of {len(planned)} failed:", file=sys.stderr)
            for one in planned:
                if one.out in failed:
                    print(printable(f"  {one.title}: {failed[one.out]}"), file=sys.stderr)
        if not done:
            raise UserError("No run of the sweep finished: there is nothing to choose from.")
        print(f"scoring {counted(len(done) + 1, 'run')} …", file=sys.stderr, flush=True)
        candidates = read_candidates([*dict.fromkeys([reference.out, *(one.out for one in done)])])
        pool = [candidate.predictions for candidate in candidates]
        choice = choose(pool, self.by, reference_among(candidates), guard=not self.no_guard)
        print_choice(candidates, choice)
        chosen = candidates[choice.chosen].run
        overrides = next(one.overrides for one in (*done, reference) if one.out == chosen)
        lost = {one.title: failed[one.out] for one in planned if one.out in failed}
        write_choice(out, candidates, choice, overrides, lost)
        sweep = SweepFolder(out)
        print(printable(f"written: {sweep.choice_file}, {sweep.scores_file}"))
        config = RunFolder(chosen).config_file
        code = f" --backbone {base.backbone}" if base.backbone is not None and names_file(base.backbone) else ""
        print(printable(f"to train it on all of the source: tsadapt fit --config {config} --holdout 0{code}"))

    def _print_commands(self, base: RunConfig, axes: "Axes", out: Path) -> None:
        """A line for source-only and for every other run, each with its config in the sweep's folder."""
        from tsadapt.config import to_toml
        from tsadapt.files import write_atomically
        from tsadapt.models.encoders import names_file
        from tsadapt.runs.folder import RunFolder, SweepFolder
        from tsadapt.sweep.plan import SOURCE_ONLY, Planned

        if self.search == "optuna":
            raise UserError(
                "--print-commands needs all runs beforehand, and optuna proposes them one by one: leave out --search"
                " optuna, or start the sweep on several machines with one --storage."
            )
        folder = SweepFolder(out.absolute())
        code = ["--backbone", base.backbone] if base.backbone is not None and names_file(base.backbone) else []
        more = [
            *code,
            *(["--keep-memory"] if self.keep_memory else []),
            *(["--tensorboard"] if self.tensorboard else []),
        ]
        for one in [Planned.of(base, SOURCE_ONLY, out), *self._planned(base, axes, out)]:
            run = RunFolder(one.out.absolute())
            file = folder.planned_config(run)
            write_atomically(file, to_toml(one.config))
            print(shlex.join(["tsadapt", "fit", "--config", str(file), "--out", str(run.path), *more]))
        folder.runs_folder.mkdir(exist_ok=True)
        print(f"run the same sweep without --print-commands, to choose among these runs ({out})", file=sys.stderr)

    def _check_flags(self) -> None:
        if self.jobs < 1 or (self.trials is not None and self.trials < 1):
            raise UserError("--jobs and --trials are numbers from 1 on.")
        if self.search == "grid" and self.trials is not None:
            raise UserError("--search grid trains all combinations: leave out --trials, or --search random.")
        if self.storage is not None and self.search != "optuna":
            raise UserError("--storage is optuna's: add --search optuna.")

    def _train(
        self, base: RunConfig, axes: "Axes", reference: "Planned", out: Path
    ) -> "tuple[list[Planned], dict[Path, str]]":
        """Source-only first and by itself: it finds what is wrong with the data, and fills caches; then the others."""
        from tsadapt.runs.fit import Interrupted
        from tsadapt.sweep.runner import How, run_all, train
        from tsadapt.sweep.search import Search

        planned = self._planned(base, axes, out)
        study = Search(base, axes, out, self.storage) if self.search == "optuna" else None
        how = How(self.overwrite, self.tensorboard, self.keep_memory)
        try:
            print("source-only, the reference …", file=sys.stderr, flush=True)
            judged_by = train(reference, how, quiet=self.quiet)["judged_by"]
            if study is not None:
                return study.run(self.trials or TRIALS, self._scorer(), self.jobs, self.quiet, judged_by, how)
            what = counted(len(planned), "run")
            print(printable(f"{what} to {out / 'runs'}, {self.jobs} at a time …"), file=sys.stderr)
            return planned, run_all(planned, self.jobs, self.quiet, judged_by, how)
        except (Interrupted, KeyboardInterrupt) as stopped:
            raise KeyboardInterrupt("run the same command to resume") from stopped

    def _planned(self, base: RunConfig, axes: "Axes", out: Path) -> "list[Planned]":
        """All runs that can be known before anything is trained, checked; none of optuna's."""
        from tsadapt.objectives.objective import uses
        from tsadapt.sweep.plan import Planned, draw, grid
        from tsadapt.training.setup import check_choices

        search = self.search or ("random" if self.trials is not None else "grid")
        settings = draw(axes, self.trials or TRIALS, base.seed) if search == "random" else []
        settings = grid(axes) if search == "grid" else settings
        planned = [Planned.of(base, one, out) for one in settings]
        for one in planned:
            check_choices(one.config)
        for name in axes:
            if not any(uses(one.config, name) for one in planned or [Planned.of(base, {}, out)]):
                raise UserError(f"--grid sweeps {name}, but no term of these runs has such a setting.")
        return planned

    def _scorer(self) -> Any:
        """What guides optuna: the validator of --by if it scores a run alone, else dev."""
        from tsadapt.selection import VALIDATORS
        from tsadapt.sweep.choice import read_candidates

        alone = self.by in VALIDATORS and VALIDATORS[self.by].alone is not None
        guide = VALIDATORS[self.by if alone else "dev"]
        if not alone:
            print(f"note: {self.by} compares a whole pool; the search is guided by dev meanwhile.", file=sys.stderr)

        def score(run: Path) -> float:
            last = read_candidates([run])[-1]
            return -float(guide.goodness(guide.scores([last.predictions]))[0])

        return score


def _hash(base: RunConfig, grid: tuple[str, ...]) -> str:
    return hashlib.sha256(json.dumps([base.hash(), *sorted(grid)]).encode()).hexdigest()[:12]


def _check_folder(out: Path, base: RunConfig) -> None:
    """Refuse a folder that holds something else, or a sweep of other data."""
    from tsadapt.runs.folder import SweepFolder

    if out.exists() and any(out.iterdir()) and not SweepFolder(out).exists:
        raise UserError(f"{out} is not empty and holds no sweep: choose another --out.")
    for run in SweepFolder(out).runs():
        there = run.config
        if (there.source, there.target) != (base.source, base.target):
            raise UserError(f"{out} holds a sweep of {there.source} → {there.target}: choose another --out.")
