"""The estimator on embeddings of photographs, beside logistic regression and skada's shallow methods.

skada runs in an environment of its own, .venv-skada, made when first needed. Target labels only judge.
"""

import json
import statistics
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.skada_environment import ROOT, skada_python

from paper.cells import Cell
from paper.jobs import Job, Workspace
from paper.pictures import draw_rows
from paper.results_file import Key, Results, parts
from paper.rows import Row
from tsadapt import DomainAdaptationClassifier, TSAClassifier
from tsadapt.data.open import open_dataset
from tsadapt.data.types import match_labels
from tsadapt.estimator import NoTargetWarning

__all__ = ["OTHERS", "accuracy_of_job", "describe_embeddings", "draw_embeddings", "means_by_set", "settings_of_method"]

OTHERS = ("logistic regression", "skada CORAL", "skada OTMapping")
SKADA = "0.6.0"


def _estimator(row: str) -> DomainAdaptationClassifier:
    """Ours, with default settings."""
    if row == "+TSA":
        return TSAClassifier()
    if row == "AdaBN":
        return DomainAdaptationClassifier("adabn")
    return DomainAdaptationClassifier(target_terms=("mi",)) if row == "+MI" else DomainAdaptationClassifier()


def settings_of_method(job: Job, quick: bool) -> dict[str, Any]:
    """What the accuracy depends on beside the config."""
    return {"skada": SKADA} if job.row in OTHERS else {}


def accuracy_of_job(job: Job, space: Workspace) -> dict[str, Any]:
    """Target accuracy in percent of one method on one task."""
    source, target = open_dataset(job.config.source).train, open_dataset(job.config.target).train
    assert source.classes is not None
    x_s, x_t = (domain.tensor.numpy().astype(np.float32) for domain in (source, target))
    y_s, y_t = (match_labels(domain, source.classes)[0].numpy() for domain in (source, target))
    if job.row in OTHERS:
        accuracy = _others(job.row, (x_s, y_s), (x_t, y_t))
    else:
        ours = _estimator(job.row).set_params(random_state=job.seed, steps=job.config.steps)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoTargetWarning)
            accuracy = float(ours.fit(x_s, y_s, X_target=x_t).score(x_t, y_t))
    return {"accuracy": round(100 * accuracy, 2)}


def _others(row: str, source: tuple[np.ndarray, np.ndarray], target: tuple[np.ndarray, np.ndarray]) -> float:
    """The same by skada's interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "source.npz", Path(folder) / "target.npz"]
        for path, (x, y) in zip(files, (source, target), strict=True):
            np.savez(path, x=x, y=y)
        script = [str(skada_python()), str(ROOT / "benchmarks" / "skada_side.py"), "accuracy"]
        ended = subprocess.run([*script, *map(str, files), row.removeprefix("skada ")], check=True, capture_output=True)
    return float(json.loads(ended.stdout.splitlines()[-1]))


def means_by_set(results: Results) -> dict[str, dict[str, Cell]]:
    """By method and set: the average over the set's tasks, for each seed that has all of them."""
    tasks: dict[str, list[str]] = {}
    for column in dict.fromkeys(parts(key).column for key in results):
        tasks.setdefault(column.partition(":")[0], []).append(column)
    table: dict[str, dict[str, Cell]] = {}
    for row in dict.fromkeys(parts(key).row for key in results):
        seeds = sorted({parts(key).seed for key in results if parts(key).row == row})
        for name, columns in tasks.items():
            found = [[results.get(str(Key(row, column, seed))) for column in columns] for seed in seeds]
            values = [statistics.mean(run["accuracy"] for run in runs) for runs in found if None not in runs]  # type: ignore[index]
            table.setdefault(row, {})[f"{name}, {len(columns)} tasks"] = Cell(tuple(values), len(seeds))
    return table


def describe_embeddings(results: Results, extra: dict[str, Any]) -> str:
    """Averages over the tasks of each set, then every task."""
    means, rows = means_by_set(results), [*dict.fromkeys(parts(key).row for key in results)]
    lines = [
        "Target accuracy, %, mean over the tasks; ± is the standard deviation of that mean over the seeds (the first"
        " three methods draw nothing at random).",
        "",
        f"| | {' | '.join(next(iter(means.values())))} |",
        "|---|" + "---|" * len(next(iter(means.values()))),
        *(f"| {_title(row)} | {' | '.join(map(_text, means[row].values()))} |" for row in rows),
        "",
        f"| task | {' | '.join(map(_title, rows))} |",
        "|---|" + "---|" * len(rows),
    ]
    for column in dict.fromkeys(parts(key).column for key in results):
        cells = []
        for row in rows:
            here = [run["accuracy"] for key, run in results.items() if parts(key)[:2] == (row, column)]
            cells.append(_text(Cell(tuple(here), len(here))))
        lines.append(f"| {column} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _title(row: str) -> str:
    return row if row in OTHERS else f"ours, {row}"


def _text(cell: Cell) -> str:
    if cell.mean is None:
        return "–"
    return f"{cell.mean:.1f}" + ("" if cell.deviation is None else f" ± {cell.deviation:.1f}")


def draw_embeddings(results: Results, rows: list[Row], path: Path) -> None:
    """The averages, a panel for each set."""
    means = means_by_set(results)
    draw_rows({_title(row): cells for row, cells in means.items()}, "embeddings: target accuracy, %", path, {})
