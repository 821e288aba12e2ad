"""A table: its runs, done or resumed, what is kept of them, and how they are set beside the paper's numbers."""

import json
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tsadapt.config import RunConfig
from tsadapt.errors import UserError, counted, unknown
from tsadapt.recipes.places import Place, missing
from tsadapt.recipes.published import Published
from tsadapt.recipes.rows import Row
from tsadapt.sweep.plan import Planned
from tsadapt.sweep.runner import run_all

__all__ = [
    "AVERAGE",
    "Cell",
    "Job",
    "Kept",
    "cells",
    "data_of_run",
    "make_jobs",
    "read_kept",
    "rows_told",
    "run_jobs",
    "shortened",
]

AVERAGE = "Avg"
PARTS = (("source", "train"), ("target", "test"))
Measure = Callable[[Path], dict[str, Any]]
"""What else is worth keeping of a finished run, from its folder."""

Kept = dict[str, dict[str, Any]]
"""What was measured, by the keys of the jobs."""


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
        return f"{self.row} | {self.column} | {self.seed}"


def make_jobs(place: Place, rows: Iterable[Row], columns: Iterable[str], seeds: Iterable[int]) -> list[Job]:
    """All runs of a table, seed by seed, so that one of one seed is there early."""
    rows, columns = [*rows], [*columns]
    for column in columns:
        if column not in place.tasks:
            raise UserError(unknown("column", column, place.tasks))
    return [
        Job(row.title, column, seed, place.config(column, seed, **row.settings))
        for seed in seeds
        for row in rows
        for column in columns
    ]


def read_kept(path: Path) -> tuple[Kept, dict[str, Any]]:
    """What an earlier call measured, of its runs and beside them; nothing if there was none."""
    if not path.is_file():
        return {}, {}
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return said["runs"], said.get("extra", {})
    except (ValueError, KeyError) as error:
        raise UserError(f"{path} is not what reproduce writes: {error}. Choose another --out.") from error


def run_jobs(
    jobs: list[Job], kept: Kept, work: Path, side_by_side: int, save: Callable[[Kept], None], measure: Measure | None
) -> dict[str, str]:
    """Train what is missing, and take into `kept` what is done; why some were not run, by their keys.

    Several tables share runs: a folder of `work` is named by its config. What is kept already is not run again, even if
    its folder is gone, unless its settings changed since.
    """
    absent = {job.key: _absent(job) for job in jobs}
    todo = [job for job in jobs if not absent[job.key] and kept.get(job.key, {}).get("hash") != job.config.hash()]
    not_run = {key: why for key, why in absent.items() if why and key not in kept}
    by_folder: dict[Path, list[Job]] = {}
    for job in todo:
        by_folder.setdefault(work / "runs" / job.config.hash(), []).append(job)

    def collect() -> None:
        for folder, those in by_folder.items():
            if (folder / "metrics.json").exists():
                for job in those:
                    if kept.get(job.key, {}).get("hash") != job.config.hash():
                        kept[job.key] = _kept(job, folder, measure)
        save(kept)

    if todo:
        print(f"{counted(len(by_folder), 'run')} to do in {work / 'runs'} …", file=sys.stderr, flush=True)
    failed: dict[Path, str] = {}
    try:
        for some in _groups([*by_folder], side_by_side):
            failed |= run_all(
                [Planned({}, by_folder[folder][0].config, folder) for folder in some],
                side_by_side,
                quiet=len(by_folder) > len(some),
            )
            collect()
            if len(by_folder) > len(some):
                _progress(jobs, kept)
    finally:
        if by_folder:
            collect()
    return not_run | {job.key: why for folder, why in failed.items() for job in by_folder[folder]}


def _groups(folders: list[Path], size: int) -> list[list[Path]]:
    """So many at once that results are kept every so often."""
    step = max(4 * size, 4)
    return [folders[i : i + step] for i in range(0, len(folders), step)]


def _progress(jobs: list[Job], kept: Kept) -> None:
    done = sum(kept.get(job.key, {}).get("hash") == job.config.hash() for job in jobs)
    print(f"{done} of {len(jobs)} runs", file=sys.stderr, flush=True)


def _absent(job: Job) -> str:
    return missing(job.config.source) or missing(job.config.target)


def _kept(job: Job, folder: Path, measure: Measure | None) -> dict[str, Any]:
    """What is worth keeping of a run: numbers in percent."""
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    target = metrics["last"]["target"]
    found: dict[str, Any] = {"hash": job.config.hash(), "steps": metrics["last"]["step"]}
    for name in ("accuracy", "mean_class_accuracy"):
        found[name] = round(100 * target[name], 2)
    if "selected" in metrics:
        selected = metrics["selected"]
        found["selected"] = {"step": selected["step"], "accuracy": round(100 * selected["target"]["accuracy"], 2)}
        oracle = metrics["oracle"]
        found["oracle"] = {"step": oracle["step"], "accuracy": round(100 * oracle["accuracy"], 2)}
    found["source_accuracy"] = round(100 * metrics["last"]["source"]["accuracy"], 2)
    found["proxy_a_distance"] = metrics["last"]["proxy_a_distance"]
    found |= data_of_run(folder)
    found["versions"] = manifest["versions"]
    return found | (measure(folder) if measure is not None else {})


def data_of_run(folder: Path) -> dict[str, Any]:
    """What a run was trained on: rows and fingerprint of both domains (of the target, all rows); empty without one."""
    path = folder / "manifest.json"
    if not path.is_file():
        return {}
    data = json.loads(path.read_text(encoding="utf-8"))["data"]
    return {"data": {role: [data[role]["rows"], data[role][part]] for role, part in PARTS}}


def rows_told(kept: Kept) -> str:
    """How many rows each task was trained on, and a warning where runs of one task and seed had other data."""
    sizes: dict[str, list[tuple[int, int]]] = {}
    prints: dict[str, set[str]] = {}
    for key, run in kept.items():
        if "data" in run:
            (rows_s, print_s), (rows_t, print_t) = run["data"]["source"], run["data"]["target"]
            sizes.setdefault(key.split(" | ")[1], []).append((rows_s, rows_t))
            prints.setdefault(key.partition(" | ")[2], set()).add(print_s + print_t)
    if not sizes:
        return ""
    told = "; ".join(f"{column} {' + '.join(map(_range, zip(*found, strict=True)))}" for column, found in sizes.items())
    changed = any(len(found) > 1 for found in prints.values())
    warning = " **The data of a task changed between runs: they are not comparable.**" if changed else ""
    return f"Rows trained on (source + target): {told}.{warning}"


def _range(sizes: tuple[int, ...]) -> str:
    low, high = min(sizes), max(sizes)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


@dataclass(frozen=True)
class Cell:
    """Ours over the seeds, and the paper's."""

    values: tuple[float, ...]
    wanted: int
    paper: float | None

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
    jobs: list[Job], kept: Kept, rows: Iterable[Row], columns: list[str], paper: Published | None, measure: str
) -> dict[str, dict[str, Cell]]:
    """By row and column, with the average over the columns where all were run."""
    seeds = sorted({job.seed for job in jobs})
    table: dict[str, dict[str, Cell]] = {}
    for row in rows:
        by_seed: dict[int, list[Any]] = {
            seed: [kept.get(Job(row.title, column, seed, jobs[0].config).key, {}).get(measure) for column in columns]
            for seed in seeds
        }
        line = {
            column: Cell(
                tuple(values[i] for values in by_seed.values() if values[i] is not None),
                len(seeds),
                paper.value(row.published, column) if paper is not None else None,
            )
            for i, column in enumerate(columns)
        }
        if len(columns) > 1:
            whole = tuple(statistics.mean(values) for values in by_seed.values() if None not in values)
            line[AVERAGE] = Cell(
                whole, len(seeds), paper.value(row.published, AVERAGE) if _same(paper, columns) and paper else None
            )
        table[row.title] = line
    return table


def _same(paper: Published | None, columns: list[str]) -> bool:
    """Whether the paper's average is over these columns."""
    return paper is not None and (AVERAGE not in paper.columns or {*paper.columns} == {*columns, AVERAGE})


def shortened(place: Place, steps: int) -> Place:
    """The same with fewer steps, for a first look."""
    return replace(
        place,
        settings={**place.settings, "steps": steps, "candidates": 2},
        of_task={name: {**given, "steps": steps} for name, given in place.of_task.items()},
        protocol=f"a first look of {steps} steps, whose numbers mean nothing; the whole has: {place.protocol}",
    )
