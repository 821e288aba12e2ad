"""What the page of a table says around its numbers."""

import hashlib
from collections import Counter
from typing import Any

from paper.results_file import Kept, parts
from paper.rows import Row
from paper.tables import AVERAGE, Cell, Job, cells
from tsadapt.errors import counted

__all__ = ["MEASURES", "made_by", "not_run_told", "others_told", "selected_table", "settings_of", "with_runs"]

MEASURES = {"accuracy": "Target accuracy", "mean_class_accuracy": "Mean of the target's class accuracies"}


def with_runs(table: dict[str, dict[str, Cell]]) -> tuple[dict[str, dict[str, Cell]], str]:
    """The table without the rows and columns of which nothing was run, and which these are."""
    columns = [c for c in next(iter(table.values())) if any(row[c].values for row in table.values())]
    there = {title: {c: row[c] for c in columns} for title, row in table.items() if any(c.values for c in row.values())}
    rows_out = [title for title in table if title not in there]
    columns_out = [c for c in next(iter(table.values())) if c not in columns and c != AVERAGE]
    parts = [f"rows {', '.join(rows_out)}"] * bool(rows_out) + [f"tasks {', '.join(columns_out)}"] * bool(columns_out)
    return there, f"Not run at all: {'; '.join(parts)}." if parts else ""


def selected_table(jobs: list[Job], kept: Kept, rows: list[Row], columns: list[str], measure: str) -> str:
    """The step that validators select without labels, and the best one by target labels, beside the last."""
    judged = {key: run for key, run in kept.items() if measure in run.get("selected", {}) and measure in run["oracle"]}
    if not judged:
        return ""
    last, _ = with_runs(cells(jobs, judged, rows, columns, None, lambda run: run.get(measure)))
    selected, oracle = (
        cells(jobs, judged, rows, columns, None, lambda run, which=which: run.get(which, {}).get(measure))  # type: ignore[misc]
        for which in ("selected", "oracle")
    )
    heads = [*next(iter(last.values()))]
    lines = [
        f"Of the {jobs[0].config.candidates} steps of each run that were kept: the last / the one selected without"
        " labels (by a consensus of validators) / the best by target labels (oracle). Means over the seeds:",
        "",
        "| | " + " | ".join(heads) + " |",
        "|---|" + "---|" * len(heads),
    ]
    for title in last:
        means = [[table[title][c].mean for table in (last, selected, oracle)] for c in heads]
        told = ["–" if None in of_column else " / ".join(f"{mean:.1f}" for mean in of_column) for of_column in means]
        lines.append(f"| {title} | " + " | ".join(told) + " |")
    return "\n".join(lines)


def not_run_told(not_run: dict[str, str]) -> str:
    """What is not there and why, in a paragraph."""
    reasons = Counter(not_run.values())
    return "Not run: " + "; ".join(f"{counted(n, 'run')}, {why}" for why, n in reasons.items()) + "." if reasons else ""


def others_told(whole: list[Job], kept: Kept) -> str:
    """What else the file has: runs of other seeds, and of settings or titles that the table no longer has."""
    now = {job.key: job.config.hash() for job in whole}
    seeds = {job.seed for job in whole}
    others = sorted({parts(key).seed for key in kept} - seeds)
    old = sum(now.get(key) != run["hash"] for key, run in kept.items() if parts(key).seed in seeds)
    told = [f"runs of seed {', '.join(map(str, others))}"] * bool(others)
    told += [f"{counted(old, 'run')} of former settings or titles"] * bool(old)
    return f"Kept beside this table: {' and '.join(told)}." if told else ""


def made_by(command: str, stem: str, kept: Kept, whole: int) -> str:
    """Where the numbers come from."""
    hashes = sorted({run["hash"] for run in kept.values()})
    one = hashes[0] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:12]
    of = "" if len(hashes) == 1 else f" (of the hashes of its {len(hashes)} configs)"
    made = list(dict.fromkeys(_numbers(run["versions"]) for run in kept.values() if "versions" in run))
    part = "" if len(kept) == whole else f" in part (all of it is {whole} runs)"
    return (
        f"Made by `{command}`{part}; config hash {one}{of}; every run with its settings: [{stem}.json]({stem}.json);"
        f" {'; or '.join(made)}."
    )


def _numbers(numbers: dict[str, str]) -> str:
    return ", ".join(f"{package} {number}" for package, number in numbers.items())


def settings_of(jobs: list[Job]) -> dict[str, Any]:
    """The settings that all runs share, and by their hashes what each has otherwise."""
    by_hash = {job.config.hash(): job.config.result_keys() for job in jobs}
    first = next(iter(by_hash.values()))
    shared = {key: value for key, value in first.items() if all(keys[key] == value for keys in by_hash.values())}
    each = {name: {k: v for k, v in keys.items() if k not in shared} for name, keys in by_hash.items()}
    return {"of_all": shared, "of_each": each}
