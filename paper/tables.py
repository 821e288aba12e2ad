"""A table: its runs, done or resumed, what is kept of them, and how they are set beside the paper's numbers."""

import json
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paper.protocols import Place, image_size, missing
from paper.published import Published
from paper.results_file import Kept, Key, Ledger, parts
from paper.rows import Row
from tsadapt.config import RunConfig, read_config
from tsadapt.errors import counted
from tsadapt.sweep.plan import Planned
from tsadapt.sweep.runner import run_all
from tsadapt.training.setup import Task

__all__ = [
    "AVERAGE",
    "Cell",
    "Job",
    "absent",
    "cells",
    "data_of_run",
    "data_of_task",
    "make_jobs",
    "rows_told",
    "run_jobs",
    "with_steps",
]

AVERAGE = "Avg"
PARTS = (("source", "train"), ("target", "test"))
Pick = Callable[[dict[str, Any]], float | None]
"""A number of what was kept of a run; None if it has none, or there was no such run."""

Measure = Callable[[Path], dict[str, Any]]
"""What else is worth keeping of a finished run, from its folder."""


@dataclass(frozen=True)
class Job:
    """One run of a table."""

    row: str
    column: str
    seed: int
    config: RunConfig

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return str(Key(self.row, self.column, self.seed))


def make_jobs(place: Place, rows: Iterable[Row], columns: Iterable[str], seeds: Iterable[int]) -> list[Job]:
    """All runs of a table, seed by seed, so that one of one seed is there early."""
    rows, columns = [*rows], [*columns]
    return [
        Job(row.title, column, seed, place.config(column, seed, **row.settings))
        for seed in seeds
        for row in rows
        for column in columns
    ]


def run_jobs(jobs: list[Job], ledger: Ledger, work: Path, side_by_side: int, measure: Measure | None) -> None:
    """Train what is not there yet, and enter each run as soon as it is over: what it gave, or why it failed.

    Several tables share runs: a folder of `work` is named by its config.
    """
    by_folder = {work / "runs" / job.config.hash(): job for job in jobs}
    planned = [Planned({}, job.config, folder) for folder, job in by_folder.items()]
    entered = set[Path]()

    def enter(one: Planned, why: str = "") -> None:
        job = by_folder[one.out]
        if why:
            ledger.explain({job.key: why})
        else:
            ledger.add(job.key, _kept(job, one.out, measure))
            entered.add(one.out)
        ledger.save()

    def enter_done() -> None:
        for one in planned:
            if one.done and one.out not in entered:
                enter(one)

    enter_done()  # by a call that was stopped before it could enter them, or for another table
    if left := [one for one in planned if one.out not in entered]:
        print(f"{counted(len(left), 'run')} to do in {work / 'runs'} …", file=sys.stderr, flush=True)
        run_all(left, side_by_side, ended=enter)
        enter_done()  # by another process, meanwhile


def absent(job: Job) -> str:
    """Which data of a job is not here; empty if all is."""
    names = [name for name in (job.config.source, job.config.target) if missing(name)]
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not here" if names else ""


def _kept(job: Job, folder: Path, measure: Measure | None) -> dict[str, Any]:
    """What is worth keeping of a run: numbers in percent."""
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
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
    """What a run was trained on: rows, fingerprint (of the target, all rows) and size of images; empty without one."""
    path = folder / "manifest.json"
    if not path.is_file():
        return {}
    data, config = json.loads(path.read_text(encoding="utf-8"))["data"], read_config(folder / "config.toml")
    return _data(config, {role: (data[role]["rows"], data[role][part]) for role, part in PARTS})


def data_of_task(task: Task) -> dict[str, Any]:
    """The same of a task that leaves no folder."""
    source, target = task.source.train, task.target.train
    found = {
        "source": (len(source), source.fingerprint()),
        "target": (len(target), task.target.test.fingerprint()),
    }
    return _data(task.config, found)


def _data(config: RunConfig, found: dict[str, tuple[int, str]]) -> dict[str, Any]:
    sizes = {"source": image_size(config.source), "target": image_size(config.target)}
    return {
        "data": {role: {"rows": n, "fingerprint": said, "images": sizes[role]} for role, (n, said) in found.items()}
    }


def rows_told(kept: Kept) -> str:
    """How many rows each task was trained on, and a warning where runs of one task and seed had other data."""
    sizes: dict[str, list[tuple[int, int]]] = {}
    prints: dict[tuple[str, int], set[str]] = {}
    images: dict[str, list[str]] = {}
    for key, run in kept.items():
        if "data" in run:
            source, target = run["data"]["source"], run["data"]["target"]
            _, column, seed = parts(key)
            sizes.setdefault(column, []).append((source["rows"], target["rows"]))
            prints.setdefault((column, seed), set()).add(source["fingerprint"] + target["fingerprint"])
            images[column] = [f" of {role['images']}" if role["images"] else "" for role in (source, target)]
    if not sizes:
        return ""
    told = []
    for column, found in sizes.items():
        rows = map(_range, zip(*found, strict=True))
        told.append(f"{column} " + " + ".join(n + size for n, size in zip(rows, images[column], strict=True)))
    changed = any(len(found) > 1 for found in prints.values())
    warning = " **The data of a task changed between runs: they are not comparable.**" if changed else ""
    return f"Rows trained on (source + target): {'; '.join(told)}.{warning}"


def _range(sizes: tuple[int, ...]) -> str:
    low, high = min(sizes), max(sizes)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


@dataclass(frozen=True)
class Cell:
    """Ours over the seeds, and the paper's."""

    values: tuple[float, ...]
    wanted: int
    paper: float | None = None
    paper_deviation: float | None = None

    @property
    def mean(self) -> float | None:
        """None if nothing was run."""
        return statistics.mean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        """Over the seeds, if there are several."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper


def cells(
    jobs: list[Job], kept: Kept, rows: Iterable[Row], columns: list[str], paper: Published | None, measure: Pick
) -> dict[str, dict[str, Cell]]:
    """By row and column, with the average over the columns where all were run."""
    seeds = sorted({job.seed for job in jobs})
    table: dict[str, dict[str, Cell]] = {}
    for row in rows:
        by_seed = {
            seed: [measure(kept.get(str(Key(row.title, column, seed)), {})) for column in columns] for seed in seeds
        }
        found = {c: [v[i] for v in by_seed.values() if v[i] is not None] for i, c in enumerate(columns)}
        if len(columns) > 1:
            found[AVERAGE] = [statistics.mean(v) for v in by_seed.values() if None not in v]  # type: ignore[type-var]
        table[row.title] = {
            column: Cell(tuple(values), len(seeds), *_theirs(paper, row, column, columns))  # type: ignore[arg-type]
            for column, values in found.items()
        }
    return table


def _theirs(paper: Published | None, row: Row, column: str, columns: list[str]) -> tuple[float | None, float | None]:
    """The paper's number and its deviation; its average only where it is over the same columns."""
    if paper is None or (column == AVERAGE and not _same(paper, columns)):
        return None, None
    return paper.value(row.published, column), paper.deviation(row.published, column)


def _same(paper: Published, columns: list[str]) -> bool:
    """Whether the paper's average is over these columns."""
    return AVERAGE not in paper.columns or {*paper.columns} == {*columns, AVERAGE}


def with_steps(place: Place, steps: int, protocol: str, **settings: Any) -> Place:
    """The same with another number of steps, and the protocol that says so."""
    return replace(
        place,
        settings={**place.settings, "steps": steps, **settings},
        of_task={name: {**given, "steps": steps} for name, given in place.of_task.items()},
        protocol=protocol,
    )
