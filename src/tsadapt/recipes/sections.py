"""What the page of a table says around its numbers."""

import hashlib
from collections import Counter
from typing import Any

from tsadapt.errors import counted
from tsadapt.recipes.ledger import Kept
from tsadapt.recipes.rows import Row
from tsadapt.recipes.table import Job, cells

__all__ = ["MEASURES", "made_by", "not_run_told", "other_seeds_told", "selected_table", "settings_of"]

MEASURES = {"accuracy": "Target accuracy", "mean_class_accuracy": "Mean of the target's class accuracies"}


def selected_table(jobs: list[Job], kept: Kept, rows: list[Row], columns: list[str], measure: str) -> str:
    """The step that validators select without labels, and the best one by target labels, beside the last."""
    judged = {key: run for key, run in kept.items() if measure in run.get("selected", {}) and measure in run["oracle"]}
    last = cells(jobs, judged, rows, columns, None, lambda run: run.get(measure))
    selected, oracle = (
        cells(jobs, judged, rows, columns, None, lambda run, which=which: run.get(which, {}).get(measure))  # type: ignore[misc]
        for which in ("selected", "oracle")
    )
    lines = []
    for title, row in last.items():
        means = [[table[title][c].mean for table in (last, selected, oracle)] for c in row]
        if any(None not in of_column for of_column in means):
            told = [
                "–" if None in of_column else " / ".join(f"{mean:.1f}" for mean in of_column) for of_column in means
            ]
            lines.append(f"| {title} | " + " | ".join(told) + " |")
    if not lines:
        return ""
    heads = [*next(iter(last.values()))]
    return "\n".join(
        [
            "Last step / the step selected without labels / the best of the same few by target labels (oracle), means:",
            "",
            "| | " + " | ".join(heads) + " |",
            "|---|" + "---|" * len(heads),
            *lines,
        ]
    )


def not_run_told(not_run: dict[str, str]) -> str:
    """What is not there and why, in a paragraph."""
    reasons = Counter(not_run.values())
    return "Not run: " + "; ".join(f"{counted(n, 'run')}, {why}" for why, n in reasons.items()) + "." if reasons else ""


def other_seeds_told(whole: list[Job], kept: Kept) -> str:
    """Which other seeds the file has."""
    seeds = {job.seed for job in whole}
    others = sorted({int(key.rsplit(" | ", 1)[1]) for key in kept} - seeds)
    return f"Kept beside this table: runs of seed {', '.join(map(str, others))}." if others else ""


def made_by(command: str, stem: str, kept: Kept) -> str:
    """Where the numbers come from."""
    hashes = sorted({run["hash"] for run in kept.values()})
    one = hashes[0] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:12]
    of = "" if len(hashes) == 1 else f" (of the hashes of its {len(hashes)} configs)"
    made = list(dict.fromkeys(_numbers(run["versions"]) for run in kept.values() if "versions" in run))
    return (
        f"Made by `{command}`; config hash {one}{of}; every run with its settings: [{stem}.json]({stem}.json);"
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
