"""A benchmark from beginning to end: every method on every task with every seed, each a run that is made once.

The runs lie in the benchmark's folder under the hash of their configs, so the same call continues where the last one
stopped, and a further method, task or seed adds its own runs alone.
"""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tsadapt.benchmark.tables import as_json, describe, latex, long_csv
from tsadapt.benchmark.tasks import Task, Truth, checked, named_methods, parse_task
from tsadapt.config import RunConfig
from tsadapt.errors import UserError, counted, printable
from tsadapt.files import write_atomically, write_json
from tsadapt.objectives.objective import with_settings
from tsadapt.runs.fit import versions
from tsadapt.runs.folder import RunFolder, SweepFolder
from tsadapt.sweep.plan import Planned
from tsadapt.sweep.runner import run_all
from tsadapt.training.setup import check_choices, one_spelling, reading_config

__all__ = ["Benchmarked", "Metric", "benchmark"]

Metric = Literal["accuracy", "mean-class-accuracy"]

NOT_HERE = {
    "source_free": "a benchmark trains every method from the source",
    "target_share": "a benchmark trains on all target rows; use tsadapt fit",
    "target_draw": "a benchmark trains on all target rows; use tsadapt fit",
    "target_labels": "it measures with all labels of the targets, and trains on none",
    "use_target_labels": "it measures with all labels of the targets, and trains on none",
}
"""Settings that a benchmark does not take, and why."""


@dataclass(frozen=True)
class BenchmarkFolder:
    """What a benchmark writes: tables, and the runs behind them."""

    path: Path

    @property
    def results(self) -> Path:
        """Everything, for programs."""
        return self.path / "benchmark.json"

    @property
    def page(self) -> Path:
        """The table, with what its numbers mean."""
        return self.path / "benchmark.md"

    @property
    def table(self) -> Path:
        """A line for every run."""
        return self.path / "benchmark.csv"

    @property
    def latex(self) -> Path:
        """The table for a paper."""
        return self.path / "benchmark.tex"

    @property
    def sweep(self) -> SweepFolder:
        """The runs."""
        return SweepFolder(self.path)


@dataclass(frozen=True)
class Benchmarked:
    """What a benchmark found: its folder, what benchmark.json holds, and every score by method, task and seed."""

    folder: Path
    results: dict[str, Any]
    scores: dict[str, dict[str, dict[int, float]]]


@dataclass(frozen=True)
class _Cell:
    """One run, and what it stands for."""

    method: str
    task: Task
    seed: int
    planned: Planned


def benchmark(
    tasks: Sequence[str | Task],
    methods: Sequence[str],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    baseline: str | None = None,
    metric: Metric = "accuracy",
    out: str | Path = "benchmark",
    jobs: int = 1,
    quiet: bool = True,
    **settings: Any,
) -> Benchmarked:
    """Train every method on every task with every seed, and compare them, into the folder `out`.

    A task is NAME=SOURCE:TARGET, a method a name (cdan+e, cdan+e+tsa, a preset, a term; your own once it is
    registered). `variants` are further methods by name, each its settings: {"wide": {"method": "mine", "bottleneck":
    512}}. `settings` are those of `fit`, for all. Differences are to the `baseline` (the first method). The same call
    resumes.
    """

    def tell(text: str) -> None:
        if not quiet:
            print(printable(text), file=sys.stderr, flush=True)

    given = [task if isinstance(task, Task) else parse_task(task) for task in tasks]
    named = named_methods(methods, variants)
    _check(given, named, seeds, baseline, jobs, settings)
    folder = BenchmarkFolder(Path(out))
    _check_folder(folder)
    cells = _planned(given, named, seeds, settings, folder)
    truths = checked(given, reading_config(settings))
    with folder.sweep.lock():
        if not folder.results.exists():  # a folder that is stopped in says what it is
            write_json(folder.results, {"tasks": {}, "methods": {}, "seeds": [], "runs": []})

        def written(failed: Mapping[Path, str]) -> Benchmarked:
            return _written(folder, given, named, seeds, baseline or next(iter(named)), metric, cells, failed)

        try:
            failed = _train(cells, truths, jobs, quiet, tell)
        except KeyboardInterrupt as stopped:
            written({})
            raise KeyboardInterrupt("the same command resumes") from stopped
        made = written(failed)
    if not any(made.scores.values()):
        raise UserError(f"Every run failed, the first with: {next(iter(failed.values()))}")
    return made


def _check(
    tasks: Sequence[Task], methods: Mapping[str, Any], seeds: Sequence[int], baseline: str | None, jobs: int,
    settings: Mapping[str, Any],
) -> None:  # fmt: skip
    """Refuse what can be known to be wrong without opening any data."""
    if not tasks:
        raise UserError("A benchmark needs tasks, for example: --task a=photos/labelled:photos/new")
    names = [task.name for task in tasks]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"Two tasks are called {twice[0]}: give each a name of its own, NAME=SOURCE:TARGET.")
    if not seeds or len({*seeds}) < len(seeds):
        raise UserError(f"seeds are {', '.join(map(str, seeds)) or 'none'}: expected different numbers, such as 0,1,2.")
    if baseline is not None and baseline not in methods:
        raise UserError(f"--baseline is {baseline!r}, expected one of the methods: {', '.join(methods)}.")
    if jobs < 1:
        raise UserError(f"--jobs is {jobs}, expected 1 or more.")
    for name, why in NOT_HERE.items():
        if any(name in given for given in (settings, *methods.values())):
            raise UserError(f"--{name.replace('_', '-')} is not for a benchmark: {why}.")


def _check_folder(folder: BenchmarkFolder) -> None:
    """Refuse a folder that holds something else before any work is done."""
    path = folder.path
    if path.exists() and not path.is_dir():
        raise UserError(f"--out {path} is a file, expected a folder.")
    if path.exists() and any(path.iterdir()) and not folder.results.is_file():
        raise UserError(f"{path} is not empty and holds no benchmark: choose another --out.")


def _planned(
    tasks: Sequence[Task], methods: Mapping[str, Mapping[str, Any]], seeds: Sequence[int], settings: Mapping[str, Any],
    folder: BenchmarkFolder,
) -> list[_Cell]:  # fmt: skip
    """All runs, seed by seed, so that the table of one seed is complete early; a method's own settings win."""
    cells = []
    for seed in seeds:
        for method, own in methods.items():
            for task in tasks:
                try:
                    config = with_settings(RunConfig(task.source, task.target), **{**settings, **own, "seed": seed})
                    check_choices(config)
                except UserError as error:
                    raise UserError(f"{method}: {error}") from error
                config = one_spelling(config)
                cells.append(_Cell(method, task, seed, Planned({}, config, folder.sweep.run(config).path)))
    return cells


def _train(
    cells: Sequence[_Cell], truths: Mapping[str, Truth], jobs: int, quiet: bool, tell: Callable[[str], None]
) -> dict[Path, str]:
    """Train what is missing, and judge again what was judged by other labels; why those failed that did."""
    planned = [*{cell.planned.out: cell.planned for cell in cells}.values()]
    truth = {cell.planned.out: truths[cell.task.name] for cell in cells}

    def outdated(one: Planned) -> bool:
        run = RunFolder(one.out)
        there = run.manifest.get("data", {}).get("target", {}).get("test"), one.judged_by.get("target")
        return there != (truth[one.out].rows, truth[one.out].labels)

    left = sum(not one.done for one in planned)
    if left:
        tell(f"{counted(left, 'run')} of {len(planned)} to do, {jobs} at a time; the same command resumes …")
    failed: dict[Path, str] = {}
    if jobs > 1 and any(one.photographs for one in truths.values()):  # features once, before several runs want them
        first = [cell.planned for cell in cells if (cell.method, cell.seed) == (cells[0].method, cells[0].seed)]
        failed |= run_all(first, 1, quiet, outdated=outdated)
        planned = [one for one in planned if one.out not in failed]
    return failed | run_all(planned, jobs, quiet, outdated=outdated)


def _written(
    folder: BenchmarkFolder, tasks: Sequence[Task], methods: Mapping[str, Mapping[str, Any]], seeds: Sequence[int],
    baseline: str, metric: Metric, cells: Sequence[_Cell], failed: Mapping[Path, str],
) -> Benchmarked:  # fmt: skip
    """Write the tables of all runs that are done."""
    done = [cell for cell in cells if cell.planned.done]
    runs = [_numbers(cell, folder) for cell in done]
    scores: dict[str, dict[str, dict[int, float]]] = {method: {} for method in methods}
    for cell, run in zip(done, runs, strict=True):
        scores[cell.method].setdefault(cell.task.name, {})[cell.seed] = run[metric.replace("-", "_")]
    names = [task.name for task in tasks]
    lost = {
        f"{cell.method}, {cell.task.name}, seed {cell.seed}": failed[cell.planned.out]
        for cell in cells
        if cell.planned.out in failed
    }
    results: dict[str, Any] = {
        "tasks": {task.name: {"source": task.source, "target": task.target} for task in tasks},
        "methods": {name: {k: list(v) if isinstance(v, tuple) else v for k, v in own.items()}
                    for name, own in methods.items()},
        "seeds": [*seeds],
        "metric": metric,
        "baseline": baseline,
        "standings": as_json(scores, names, baseline),
        "runs": runs,
        "failed": lost,
        "versions": versions(),
    }  # fmt: skip
    write_json(folder.results, results)
    write_atomically(folder.page, describe(scores, tasks, seeds, baseline, metric, lost, _command(folder)))
    write_atomically(folder.table, long_csv(runs))
    write_atomically(folder.latex, latex(scores, names, metric))
    return Benchmarked(folder.path, results, scores)


def _command(folder: BenchmarkFolder) -> str:
    """What was typed, for the page; empty where a program asked."""
    return shlex.join(["tsadapt", *sys.argv[1:]]) if sys.argv[1:2] == ["benchmark"] else ""


def _numbers(cell: _Cell, folder: BenchmarkFolder) -> dict[str, Any]:
    """What is kept of a run: accuracies at its last step, and where validators chose one, at that."""
    metrics = RunFolder(cell.planned.out).metrics
    last = metrics["last"]
    found: dict[str, Any] = {
        "method": cell.method, "task": cell.task.name, "seed": cell.seed, "steps": last["step"],
        "accuracy": last["target"]["accuracy"], "mean_class_accuracy": last["target"]["mean_class_accuracy"],
        "source_accuracy": last["source"].get("accuracy"),
    }  # fmt: skip
    if "selected" in metrics:
        selected = metrics["selected"]
        found |= {"selected_step": selected["step"], "selected_accuracy": selected["target"]["accuracy"]}
        found["oracle_accuracy"] = metrics["oracle"]["accuracy"]
    found["run"] = str(cell.planned.out.relative_to(folder.path))
    return found
