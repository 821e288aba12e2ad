"""The leaderboard: every method and target term, plain and with TSA, on the same tasks with one setting each."""

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paper.analyses.section import Section, configs_of_rows, measured_before, with_hashes
from paper.analyses.step_cost import step_costs
from paper.jobs import Job, make_jobs
from paper.protocols import Protocol
from paper.published import Published
from paper.results_file import Results, parts
from paper.rows import MI, TSA, Row
from tsadapt.benchmark.standings import Standing, bootstrap
from tsadapt.benchmark.standings import standings as of_scores
from tsadapt.objectives.base import METHODS, TARGET_TERMS
from tsadapt.report.figures import pyplot, write_figure

__all__ = ["BASELINE", "LEADERBOARD", "describe_standing", "draw_standing", "finalists", "standings", "step_ratios"]

BASES = ("dann", "cdan+e", "bsp", "jada")
"""The paper's base methods beside source-only; they have a row with mutual information alone as well."""

SHARP = ("dann", "cdan+e")
"""Methods that have a row with sharpness-aware steps as well."""

BASELINE = "adabn"
MARKS = {"plain": ("o", "#616161"), "+MI": ("s", "#1565c0"), "+TSA": ("^", "#e65100"), "+SDAT": ("D", "#2e7d32")}
"""How the picture marks a row."""

VARIANTS = (" +mi", " +tsa", " +sdat")
"""What may stand behind the name of a method or term."""

BEST, SEEDS = 8, (1, 2)
"""How many of the best have further seeds, beside the paper's bases, and which."""


def _rows() -> list[Row]:
    """Baselines, the paper's bases, every other target term and method, each plain and with TSA; then with SDAT."""
    rows = [
        Row("source-only", {}),
        Row(BASELINE, {"method": BASELINE}),
        Row("mi", MI),
        Row("tsa", TSA),
        Row("preset strong", {"preset": "strong"}),
    ]
    for name in BASES:
        rows += [
            Row(name, {"method": name}),
            Row(f"{name} +mi", {"method": name, **MI}),
            Row(f"{name} +tsa", {"method": name, **TSA}),
        ]
    for name in sorted({*TARGET_TERMS} - {"mi"}):
        rows += [Row(name, {"target_terms": (name,)}), Row(f"{name} +tsa", {**TSA, "target_terms": ("mi", name)})]
    for name in sorted({*METHODS} - {"source-only", BASELINE, *BASES}):
        rows.append(Row(name, {"method": name}))
        if METHODS[name].linear:
            rows.append(Row(f"{name} +tsa", {"method": name, **TSA}))
    return [*rows, *(Row(f"{name} +sdat", {"method": name, "sdat": True}) for name in SHARP)]


LEADERBOARD = _rows()
"""In the order in which they run, task by task, so that the first ones are complete first."""


def standings(results: Results, columns: list[str]) -> list[Standing]:
    """All rows that have every task, the best first; accuracies are means over the seeds."""
    by_row: dict[str, dict[str, dict[int, float]]] = {}
    for key, run in results.items():
        title, column, seed = parts(key)
        by_row.setdefault(title, {}).setdefault(column, {})[seed] = run["accuracy"]
    return of_scores(by_row, columns)


def finalists(protocol: Protocol, rows: list[Row], results: Results) -> list[Job]:
    """Further seeds of the best rows and of the paper's bases, once the first seed of all rows is there."""
    columns = [*protocol.tasks]
    first = {key: run for key, run in results.items() if parts(key).seed == 0}
    standing = standings(first, columns)
    if len(standing) < len(rows):
        return []
    titles = {one.title for one in standing[:BEST]} | {"source-only", BASELINE, "mi", "tsa"}
    titles |= {f"{name}{what}" for name in BASES for what in ("", " +mi", " +tsa")}
    return make_jobs(protocol, [row for row in rows if row.title in titles], columns, SEEDS)


def step_ratios(
    protocol: Protocol, rows: list[Row], columns: list[str], results: Results, before: dict[str, Any],
    may_measure: bool, paper: Published | None,
) -> Section:  # fmt: skip
    """Time of a step of every row that was run, measured in turns in one process; `describe_standing` shows it."""
    there = {parts(key).row for key in results}
    configs = configs_of_rows(protocol, [row for row in rows if row.title in there], [_timed(columns)])
    found = measured_before(before, configs)
    if not found and may_measure:
        found = step_costs(configs)
    return "", with_hashes(found, configs) if found else before, {}


def describe_standing(results: Results, extra: Mapping[str, Any]) -> str:
    """The table of standings, what TSA adds to each method, and every accuracy by task."""
    columns = _columns(results)
    standing = standings(results, columns)
    incomplete = sorted({parts(key).row for key in results} - {one.title for one in standing})
    if not standing:
        return "No row has all of its tasks yet."
    by_title = {one.title: one for one in standing}
    parts_of_page = [
        _standing_table(standing, columns, extra.get("measured", {})),
        _gain_table(by_title),
        _task_table(standing, columns),
        f"Not complete yet: {', '.join(incomplete)}." if incomplete else "",
    ]
    return "\n\n".join(part for part in parts_of_page if part)


def _columns(results: Results) -> list[str]:
    """The tasks, in the order of the first row that ran."""
    return [*dict.fromkeys(parts(key).column for key in results)]


def _timed(columns: list[str]) -> str:
    """The task whose step is timed: features, which is what most people train on."""
    return next((column for column in columns if not column.startswith("digits")), columns[0])


def _groups(columns: list[str]) -> dict[str, list[int]]:
    """The tasks of each dataset: their columns begin with its name."""
    groups: dict[str, list[int]] = {}
    for i, column in enumerate(columns):
        groups.setdefault(column.partition(": ")[0], []).append(i)
    return groups


def _standing_table(standing: list[Standing], columns: list[str], costs: Mapping[str, float]) -> str:
    groups = _groups(columns)
    base = next((one for one in standing if one.title == BASELINE), None)
    plain = costs.get("source-only")
    lines = [
        "Mean rank over the tasks among the rows that are complete, target accuracy in %, last step, means over the"
        " seeds. The gain over AdaBN is the mean over the tasks, with a 95 % bootstrap interval over tasks, bold where"
        " it does not contain zero. Step: its time as a ratio to source-only's, measured in turns in one process on"
        f" {_timed(columns)}.",
        "",
        f"| | mean rank | {' | '.join(groups)} | all tasks | over AdaBN | step | seeds |",
        "|---|---|" + "---|" * len(groups) + "---|---|---|---|",
    ]
    for one in standing:
        means = [f"{statistics.mean(one.accuracies[i] for i in group):.1f}" for group in groups.values()]
        gain = "–" if base is None or one is base else _gain(one, base)
        ratio = f"{costs[one.title] / plain:.1f}×" if plain and one.title in costs else "–"
        lines.append(
            f"| {one.title} | {one.rank:.1f} | {' | '.join(means)} | {one.mean:.1f} | {gain} | {ratio} | {one.seeds} |"
        )
    return "\n".join(lines)


def _gain_table(by_title: Mapping[str, Standing]) -> str:
    """What TSA adds to each row, and for the bases what it adds to mutual information."""
    lines = []
    for title, one in by_title.items():
        tsa = by_title.get("tsa" if title in ("source-only", "mi") else f"{title} +tsa")
        if tsa is None or title.endswith(VARIANTS) or title == "mi":
            continue
        mi = by_title.get("mi" if title == "source-only" else f"{title} +mi")
        over_mi = "–" if mi is None else _gain(tsa, mi)
        lines.append(f"| {title} | {one.mean:.1f} | {tsa.mean:.1f} | {_gain(tsa, one)} | {over_mi} |")
    if not lines:
        return ""
    head = [
        "What TSA (the augmentation and mutual information) adds, mean over the tasks with a 95 % bootstrap interval"
        " over tasks. The last column is what the augmentation adds to mutual information.",
        "",
        "| | plain | +TSA | +TSA − plain | +TSA − +MI |",
        "|---|---|---|---|---|",
    ]
    return "\n".join(head + lines)


def _task_table(standing: list[Standing], columns: list[str]) -> str:
    lines = [
        "Every task:", "", f"| | {' | '.join(columns)} |", "|---|" + "---|" * len(columns),
        *(f"| {one.title} | {' | '.join(f'{value:.1f}' for value in one.accuracies)} |" for one in standing),
    ]  # fmt: skip
    return "\n".join(lines)


def _gain(one: Standing, base: Standing) -> str:
    mean, low, high = bootstrap([a - b for a, b in zip(one.accuracies, base.accuracies, strict=True)])
    text = f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
    return f"**{text}**" if low > 0 or high < 0 else text


def draw_standing(results: Results, rows: list[Row], path: Path) -> None:
    """The gain of every row over AdaBN, a panel for each dataset: plain, with MI, TSA and SDAT on one line."""
    columns = _columns(results)
    by_title = {one.title: one for one in standings(results, columns)}
    groups = {**_groups(columns), "all tasks": [*range(len(columns))]}
    names = list(dict.fromkeys(_family(title) for title in by_title))
    figure, axes = pyplot().subplots(
        1, len(groups), figsize=(3 + 2.4 * len(groups), 1.4 + 0.24 * max(len(names), 1)), layout="constrained",
        sharey=True, squeeze=False,
    )  # fmt: skip
    base = by_title.get(BASELINE)
    for axis, (group, tasks) in zip(axes.flat, groups.items(), strict=True):
        for title, one in by_title.items():
            what = _variant(title)
            value = statistics.mean(one.accuracies[i] - (base.accuracies[i] if base else 0) for i in tasks)
            marker, colour = MARKS[what]
            axis.plot(value, names.index(_family(title)), marker, color=colour, markersize=6, alpha=0.85)
        axis.axvline(0, color="#616161", linewidth=0.8)
        axis.set(title=group, ylim=(len(names) - 0.5, -0.5))
        axis.set_yticks(range(len(names)), names)
        axis.grid(axis="both", alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    for what, (marker, colour) in MARKS.items():
        axes[0][0].plot([], [], marker, color=colour, label=what)
    figure.legend(loc="outside lower center", ncols=len(MARKS), frameon=False)
    figure.suptitle("Target accuracy minus AdaBN's, points, last step", fontsize=10)
    write_figure(figure, path)


def _family(title: str) -> str:
    if title in ("mi", "tsa"):
        return "source-only"
    return title.rpartition(" ")[0] if title.endswith(VARIANTS) else title


def _variant(title: str) -> str:
    """What a row has beside its method or term, as the picture names it.

    >>> [_variant(title) for title in ("dann", "tsa", "dann +mi", "cdan+e +sdat")]
    ['plain', '+TSA', '+MI', '+SDAT']
    """
    found = f" +{title}" if title in ("mi", "tsa") else title
    return next((f"+{end[2:].upper()}" for end in VARIANTS if found.endswith(end)), "plain")
