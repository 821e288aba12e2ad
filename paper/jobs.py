"""The runs behind a table: which there are, how they are trained, and what is stored of each."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paper.protocols import Protocol, image_size, missing, on_this_machine, short_copy
from paper.results_file import Key, ResultsFile
from paper.rows import Row
from tsadapt.config import RunConfig
from tsadapt.errors import counted
from tsadapt.runs.fit import train_run
from tsadapt.runs.folder import RunFolder, SweepFolder
from tsadapt.sweep.plan import Planned
from tsadapt.sweep.runner import run_all
from tsadapt.training.setup import Task
from tsadapt.training.trainer import Trainer

__all__ = [
    "Job",
    "Measure",
    "Watch",
    "Workspace",
    "absent",
    "data_of_run",
    "data_of_task",
    "make_jobs",
    "run_jobs",
    "train_watched",
]

PARTS = (("source", "train"), ("target", "test"))

Measure = Callable[[Path], dict[str, Any]]
"""What else is worth storing of a finished run, from its folder."""

Watch = Callable[[RunConfig, Path], Callable[[Trainer], None]]
"""From a config and the folder of its run to what is called after every logged step."""


@dataclass(frozen=True)
class Job:
    """One run of a table."""

    row: str
    column: str
    seed: int
    config: RunConfig

    @property
    def key(self) -> str:
        """Its name in the results file."""
        return str(Key(self.row, self.column, self.seed))


@dataclass(frozen=True)
class Workspace:
    """Where a recipe's own work happens: a folder for runs, the path of its pictures without suffix, and how."""

    folder: Path
    pictures: Path
    quick: bool = False
    jobs: int = 1

    def run_folder(self, config: RunConfig) -> Path:
        """The folder of a run; tables share it."""
        return SweepFolder(self.folder).run(config).path


def make_jobs(protocol: Protocol, rows: Iterable[Row], columns: Iterable[str], seeds: Iterable[int]) -> list[Job]:
    """All runs of a table, seed by seed, so that a table of one seed is complete early."""
    rows, columns = [*rows], [*columns]
    return [
        Job(row.title, column, seed, protocol.config(column, seed, **row.settings))
        for seed in seeds
        for row in rows
        for column in columns
        if seed in (row.seeds or (seed,)) and column in (row.columns or (column,))
    ]


def run_jobs(jobs: list[Job], results: ResultsFile, work: Path, side_by_side: int, measure: Measure | None) -> None:
    """Train what is missing, and store each run as soon as it ends: its numbers, or why it failed.

    Tables share runs: a folder in `work` is named by its config.
    """
    by_folder = {SweepFolder(work).run(job.config).path: job for job in jobs}
    planned = [Planned({}, on_this_machine(job.config), folder) for folder, job in by_folder.items()]
    stored = set[Path]()

    def store(one: Planned, why: str = "") -> None:
        job = by_folder[one.out]
        if why:
            results.explain({job.key: why})
        else:
            results.add(job.key, _numbers(job, one.out, measure))
            stored.add(one.out)
        results.save()

    def store_done() -> None:
        for one in planned:
            if one.done and one.out not in stored:
                store(one)

    store_done()  # trained by a command that was stopped before it could store them, or for another table
    if left := [one for one in planned if one.out not in stored]:
        print(f"{counted(len(left), 'run')} to do in {work / 'runs'} …", file=sys.stderr, flush=True)
        run_all(left, side_by_side, ended=store)
        store_done()  # trained by another process meanwhile


def train_watched(job: Job, space: Workspace, watch: Watch, measure: Measure | None) -> dict[str, Any]:
    """Train one run here, with something that watches; the numbers to store."""
    folder = space.run_folder(job.config)
    train_run(on_this_machine(job.config), folder, quiet=True, watch=watch(job.config, folder))
    return _numbers(job, folder, measure)


def absent(job: Job) -> str:
    """Which data of a job is missing; empty if none is."""
    names = [name for name in (job.config.source, job.config.target) if missing(name)]
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not here" if names else ""


def _numbers(job: Job, folder: Path, measure: Measure | None) -> dict[str, Any]:
    """What is stored of a run; accuracies in percent."""
    run = RunFolder(folder)
    metrics, manifest = run.metrics, run.manifest
    target = metrics["last"]["target"]
    found: dict[str, Any] = {"hash": job.config.hash(), "steps": metrics["last"]["step"]}
    for name in ("accuracy", "mean_class_accuracy"):
        found[name] = round(100 * target[name], 2)
    if "selected" in metrics:
        selected, oracle = metrics["selected"], metrics["oracle"]
        chosen = {name: round(100 * selected["target"][name], 2) for name in ("accuracy", "mean_class_accuracy")}
        found["selected"] = {"step": selected["step"], **chosen}
        found["oracle"] = {"step": oracle["step"], "accuracy": round(100 * oracle["accuracy"], 2)}
        if "best_mean_class_accuracy" in oracle:
            found["oracle"]["mean_class_accuracy"] = round(100 * oracle["best_mean_class_accuracy"], 2)
    found["source_accuracy"] = round(100 * metrics["last"]["source"]["accuracy"], 2)
    found["proxy_a_distance"] = metrics["last"]["proxy_a_distance"]
    found |= data_of_run(folder)
    found["versions"] = manifest["versions"]
    return found | (measure(folder) if measure is not None else {})


def data_of_run(folder: Path) -> dict[str, Any]:
    """The data a run was trained on: rows, fingerprint (of the target, all rows) and image size; empty without one."""
    run = RunFolder(folder)
    if not (manifest := run.manifest):
        return {}
    data = manifest["data"]
    return _data(run.config, {role: (data[role]["rows"], data[role][part]) for role, part in PARTS})


def data_of_task(task: Task) -> dict[str, Any]:
    """The same of a task that leaves no folder."""
    source, target = task.source.train, task.target.train
    found = {
        "source": (len(source), source.fingerprint()),
        "target": (len(target), task.target.test.fingerprint()),
    }
    return _data(task.config, found)


def _data(config: RunConfig, found: dict[str, tuple[int, str]]) -> dict[str, Any]:
    names = {"source": config.source, "target": config.target}
    data: dict[str, dict[str, Any]] = {
        role: {"rows": n, "fingerprint": f, "images": image_size(names[role])} for role, (n, f) in found.items()
    }
    for role, name in names.items():
        if short := short_copy(name):
            data[role]["short"] = short
    return {"data": data}
