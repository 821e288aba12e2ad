"""The page of a table: its numbers beside the paper's, what is missing, and where they come from."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paper.cells import AVERAGE, Cell, cells
from paper.jobs import Job
from paper.published import Published
from paper.request import Plan
from paper.results_file import Results, ResultsFile, parts
from paper.rows import Row
from tsadapt.config import RunConfig
from tsadapt.errors import counted
from tsadapt.files import write_atomically
from tsadapt.objectives.objective import full_settings

__all__ = [
    "MEASURES",
    "data_text",
    "made_by",
    "markdown_table",
    "over_seeds",
    "selected_table",
    "settings_of",
    "with_runs",
    "write_page",
]

MEASURES = {"accuracy": "Target accuracy", "mean_class_accuracy": "Mean of the target's class accuracies"}


def write_page(
    path: Path, plan: Plan, whole: list[Job], results: Results, stored: ResultsFile, numbers: list[str],
    pictures: list[Path], paper: Published | None, made: str,
) -> None:  # fmt: skip
    """Write all sections, one below the other."""
    recipe, protocol = plan.recipe, plan.protocol
    measured = f" {MEASURES[protocol.measure]}, %, last step, {over_seeds(results)}." if recipe.describe is None else ""
    legend = f" ({protocol.legend})" if protocol.legend else ""
    sections = [
        f"## {plan.request.name} ({protocol.title}): {recipe.what}",
        f"{_capital(protocol.title)}{legend}: {protocol.text}.{measured} {len(results)} of {len(whole)} runs done.",
        recipe.note,
        protocol.unlike if paper is not None else "",
        *numbers,
        *(f"![{drawn.stem}]({drawn.name})" for drawn in pictures),
        paper.note if paper is not None else "",
        data_text(results),
        _not_run_text({job.key: stored.not_run[job.key] for job in whole if job.key in stored.not_run}),
        _others_text(whole, stored.runs),
        made,
    ]
    write_atomically(path, "\n\n".join(section for section in sections if section) + "\n")


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def over_seeds(results: Results) -> str:
    """How many seeds the numbers average over."""
    runs = Counter(parts(key)[:2] for key in results).values()
    most, up_to = max(runs), "up to " if min(runs) < max(runs) else ""
    return f"mean ± standard deviation over {up_to}{most} seeds" if most > 1 else "one seed"


def markdown_table(table: Mapping[str, Mapping[str, Cell]], digits: int = 1) -> str:
    """Rows of ours, each followed by the paper's and the difference where the paper has the row."""
    columns = [*next(iter(table.values()))]
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for title, row in table.items():
        lines.append(f"| {title} | " + " | ".join(_ours(row[c], digits) for c in columns) + " |")
        if any(row[c].paper is not None for c in columns):
            theirs = [_theirs(row[c], digits) for c in columns]
            lines.append("| · the paper | " + " | ".join(theirs) + " |")
            differences = [row[c].difference for c in columns]
            if any(difference is not None for difference in differences):
                texts = ["–" if difference is None else f"{difference:+.{digits}f}" for difference in differences]
                lines.append("| · difference | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _theirs(cell: Cell, digits: int) -> str:
    if cell.paper is None:
        return "–"
    spread = "" if cell.paper_deviation is None else f" ± {cell.paper_deviation:.{digits}f}"
    return f"{cell.paper:.{digits}f}{spread}"


def _ours(cell: Cell, digits: int) -> str:
    if cell.mean is None:
        return "not run" if cell.wanted else "–"
    spread = "" if cell.deviation is None else f" ± {cell.deviation:.{digits}f}"
    missing = "" if len(cell.values) == cell.wanted else f" ({len(cell.values)} of {cell.wanted} seeds)"
    return f"{cell.mean:.{digits}f}{spread}{missing}"


def with_runs(table: dict[str, dict[str, Cell]]) -> tuple[dict[str, dict[str, Cell]], str]:
    """The table without the rows and columns of which nothing was run, and which these are."""
    columns = [c for c in next(iter(table.values())) if any(row[c].values for row in table.values())]
    there = {title: {c: row[c] for c in columns} for title, row in table.items() if any(c.values for c in row.values())}
    rows_out = [title for title in table if title not in there]
    columns_out = [c for c in next(iter(table.values())) if c not in columns and c != AVERAGE]
    named = [f"rows {', '.join(rows_out)}"] * bool(rows_out) + [f"tasks {', '.join(columns_out)}"] * bool(columns_out)
    return there, f"Not run at all: {'; '.join(named)}." if named else ""


def selected_table(jobs: list[Job], results: Results, rows: list[Row], columns: list[str], measure: str) -> str:
    """The step that validators select without labels, and the best one by target labels, beside the last."""
    judged = {
        key: run for key, run in results.items() if measure in run.get("selected", {}) and measure in run["oracle"]
    }
    if not judged:
        return ""
    last, _ = with_runs(cells(jobs, judged, rows, columns, None, lambda run: run.get(measure)))
    selected, oracle = (
        cells(jobs, judged, rows, columns, None, lambda run, which=which: run.get(which, {}).get(measure))  # type: ignore[misc]
        for which in ("selected", "oracle")
    )
    heads = [*next(iter(last.values()))]
    lines = [
        f"Which of a run's {jobs[0].config.candidates} saved steps to use: the last / the one that a consensus of"
        " validators selects without labels / the best by target labels (oracle). Means over the seeds:",
        "",
        "| | " + " | ".join(heads) + " |",
        "|---|" + "---|" * len(heads),
    ]
    for title in last:
        means = [[table[title][c].mean for table in (last, selected, oracle)] for c in heads]
        texts = ["–" if None in of_column else " / ".join(f"{mean:.1f}" for mean in of_column) for of_column in means]
        lines.append(f"| {title} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def data_text(results: Results) -> str:
    """How many rows each task was trained on, and warnings where the data of a task changed, or is short."""
    sizes: dict[str, list[tuple[int, int]]] = {}
    prints: dict[tuple[str, int], set[str]] = {}
    images: dict[str, list[str]] = {}
    for key, run in results.items():
        if "data" in run:
            source, target = run["data"]["source"], run["data"]["target"]
            _, column, seed = parts(key)
            sizes.setdefault(column, []).append((source["rows"], target["rows"]))
            prints.setdefault((column, seed), set()).add(source["fingerprint"] + target["fingerprint"])
            images[column] = [f" of {role['images']}" if role["images"] else "" for role in (source, target)]
    if not sizes:
        return ""
    texts = []
    for column, found in sizes.items():
        rows = map(_range, zip(*found, strict=True))
        texts.append(f"{column} " + " + ".join(n + size for n, size in zip(rows, images[column], strict=True)))
    changed = any(len(found) > 1 for found in prints.values())
    warning = " **The data of a task changed between runs: they are not comparable.**" if changed else ""
    roles = [role for run in results.values() if "data" in run for role in run["data"].values()]
    if short := [*dict.fromkeys(role["short"] for role in roles if "short" in role)]:
        warning += f" **On an incomplete copy, or another version: {'; '.join(short)}.**"
    return f"Training rows (source + target): {'; '.join(texts)}.{warning}"


def _range(sizes: tuple[int, ...]) -> str:
    low, high = min(sizes), max(sizes)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _not_run_text(not_run: dict[str, str]) -> str:
    """What is missing and why, in a paragraph."""
    reasons = Counter(not_run.values())
    return "Not run: " + "; ".join(f"{counted(n, 'run')}, {why}" for why, n in reasons.items()) + "." if reasons else ""


def _others_text(whole: list[Job], results: Results) -> str:
    """What else the file has: runs of other seeds, and of former settings or titles."""
    now = {job.key: job.config.hash() for job in whole}
    seeds = {job.seed for job in whole}
    others = sorted({parts(key).seed for key in results} - seeds)
    old = sum(now.get(key) != run["hash"] for key, run in results.items() if parts(key).seed in seeds)
    texts = [f"runs of seed {', '.join(map(str, others))}"] * bool(others)
    texts += [f"{counted(old, 'run')} with former settings or titles"] * bool(old)
    return f"The results file also holds {' and '.join(texts)}." if texts else ""


def made_by(command: str, stem: str, results: Results, whole: int) -> str:
    """Where the numbers come from: runs may name an earlier command (`made_by`) or another table (`from`)."""
    hashes = sorted({run["hash"] for run in results.values()})
    one = hashes[0] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:12]
    of = "" if len(hashes) == 1 else f" (of {len(hashes)} configs)"
    made = dict.fromkeys(_versions_text(run["versions"]) for run in results.values() if "versions" in run)
    versions = "; or ".join(made) or "package versions were not recorded"
    before = Counter(run["made_by"] for run in results.values() if "made_by" in run)
    former = "".join(f"; {counted(n, 'run')} by its predecessor (`{name}`)" for name, n in before.items())
    shared = Counter(run["from"] for run in results.values() if "from" in run)
    former += "".join(f"; {counted(n, 'run')} of [{name}]({name}.md)" for name, n in shared.items())
    part = "" if len(results) == whole else f" in part (the whole is {whole} runs)"
    return (
        f"Made by `{command}`{part}{former}; config hash {one}{of}; every run with its settings:"
        f" [{stem}.json]({stem}.json); {versions}."
    )


def _versions_text(versions: dict[str, str]) -> str:
    return ", ".join(f"{package} {number}" for package, number in versions.items())


def settings_of(jobs: list[Job]) -> dict[str, Any]:
    """The settings that all runs share, and by their hashes what each has otherwise."""
    by_hash = {job.config.hash(): _settings(job.config) for job in jobs}
    first = next(iter(by_hash.values()))
    shared = {k: v for k, v in first.items() if all(k in keys and keys[k] == v for keys in by_hash.values())}
    each = {name: {k: v for k, v in keys.items() if k not in shared} for name, keys in by_hash.items()}
    return {"of_all": shared, "of_each": each}


def _settings(config: RunConfig) -> dict[str, Any]:
    """Every setting that a result depends on, those of terms as TERM.NAME, and those of SDAT where it is used."""
    terms = {f"{term}.{name}": v for term, given in full_settings(config).items() for name, v in given.items()}
    return {k: v for k, v in config.result_keys().items() if config.sdat or not k.startswith("sdat")} | terms
