"""What some tables say beside accuracies."""

import math
import statistics
from typing import Any

from paper.cost import step_costs
from paper.footprint import footprint
from paper.protocols import Place
from paper.published import Published
from paper.results_file import Kept, parts
from paper.rows import Row
from tsadapt.config import RunConfig
from tsadapt.errors import counted

__all__ = ["Section", "bound_table", "costs", "footprints"]

Section = tuple[str, dict[str, Any], dict[str, dict[str, float]]]
"""The text, the numbers to keep, and those of them that the picture shows beside accuracies: by their name and row."""


def footprints(
    place: Place, rows: list[Row], columns: list[str], kept: Kept, before: dict[str, Any], may_measure: bool,
    paper: Published | None,
) -> Section:  # fmt: skip
    """Bytes of TSA's statistics and peak memory of a fresh process, on the first task; and what they gain on all."""
    configs = _configs(place, rows, columns)
    found = _again(before, configs)
    if not found and may_measure:
        found = {title: footprint(config) for title, config in configs.items()}
    if not found:
        return "", before, {}
    common, by_row = _common(rows, kept)
    accuracy = {title: [runs[task]["accuracy"] for task in common] for title, runs in by_row.items()}
    on_gpu = any("gpu_peak_mb" in said for said in found.values())
    lines = [
        f"Memory on {columns[0]}, MB: what the statistics keep, the network's parameters, and the peak of a fresh"
        f" process (once, the data and the libraries included){', and of its tensors on the GPU' if on_gpu else ''}."
        " A memory keeps the rows of both domains, iterative"
        " statistics a K × K matrix for each class of both, in double precision: which is less depends on the data."
        f" Prediction needs neither. The gain is over {rows[0].title}, in points of accuracy, mean over"
        f" {counted(len(common), 'run')} of each row.",
        "",
        f"| | statistics | parameters | peak of the process |{' peak on the GPU |' * on_gpu} gain |",
        f"|---|---|---|---|{'---|' * on_gpu}---|",
    ]
    published = {row.title: row.published for row in rows}
    for title, said in found.items():
        gain = _gain(accuracy, title, rows[0].title)
        told = "–" if gain is None else f"{gain[0]:+.1f}"
        gpu = f" {said['gpu_peak_mb']} |" if on_gpu else ""
        lines.append(f"| {title} | {said['statistics_mb']} | {said['model_mb']} | {said['peak_mb']} |{gpu} {told} |")
        if paper is not None and published.get(title) in paper.rows:
            lines.append(_paper_line(paper, published[title], on_gpu))
    gain = _gain(accuracy, rows[-1].title, rows[-2].title)
    if gain is not None:
        spread = "" if math.isnan(gain[1]) else f", deviation {gain[1]:.2f}"
        lines += ["", f"The memory less iterative statistics, run by run: {gain[0]:+.2f} points{spread}."]
    panels = {
        f"{what}, MB": {title: said[name] for title, said in found.items()}
        for what, name in (("statistics", "statistics_mb"), ("peak of the process", "peak_mb"))
    }
    return "\n".join(lines), _of(found, configs), panels


def _paper_line(paper: Published, row: str | None, on_gpu: bool) -> str:
    """The paper's memory, which is a GPU's, and its gain."""
    memory, gain = (paper.value(row, column) for column in ("GPU Memory (GB)", "Gain (%)"))
    told = "–" if memory is None else f"{1000 * memory:.0f}"
    cells = [*("–", "–"), *(("–", told) if on_gpu else (f"{told} on a GPU",)), "–" if gain is None else f"{gain:+.1f}"]
    return f"| · the paper | {' | '.join(cells)} |"


def _gain(accuracy: dict[str, list[float]], title: str, over: str) -> tuple[float, float] | None:
    """Mean and deviation of the differences between the runs of two rows; None if one has none."""
    if title not in accuracy or over not in accuracy:
        return None
    differences = [a - b for a, b in zip(accuracy[title], accuracy[over], strict=True)]
    return statistics.mean(differences), statistics.stdev(differences) if len(differences) > 1 else math.nan


def costs(
    place: Place, rows: list[Row], columns: list[str], kept: Kept, before: dict[str, Any], may_measure: bool,
    paper: Published | None,
) -> Section:  # fmt: skip
    """Milliseconds of a step, in turns within one process, as ratios to source-only."""
    configs = _configs(place, rows, columns)
    found = _again(before, configs)
    if not found and may_measure:
        found = step_costs(configs)
    if not found:
        return "", before, {}
    plain = found[rows[0].title]
    lines = [
        f"A step on {columns[0]}, in turns within one process (median).",
        "",
        "| | ms | to source-only |",
        "|---|---|---|",
        *(f"| {title} | {ms} | {ms / plain:.2f}× |" for title, ms in found.items()),
    ]
    panels = {"a step, to source-only's": {title: ms / plain for title, ms in found.items()}}
    return "\n".join(lines), _of(found, configs), panels


def _configs(place: Place, rows: list[Row], columns: list[str]) -> dict[str, RunConfig]:
    return {row.title: place.config(columns[0], 0, **row.settings) for row in rows}


def _of(found: dict[str, Any], configs: dict[str, RunConfig]) -> dict[str, Any]:
    """What was measured, with the hashes of what it was measured on."""
    return {"of": {title: config.hash() for title, config in configs.items()}, "measured": found}


def _again(before: dict[str, Any], configs: dict[str, RunConfig]) -> dict[str, Any]:
    """What an earlier call measured, if it was on the same runs."""
    same = before.get("of") == {title: config.hash() for title, config in configs.items()}
    found: dict[str, Any] = before["measured"] if same else {}
    return found


def _common(
    rows: list[Row], kept: Kept
) -> tuple[list[tuple[str, int]], dict[str, dict[tuple[str, int], dict[str, Any]]]]:
    """The tasks and seeds that all rows have, of those that have any; and the runs of each row by them."""
    by_row: dict[str, dict[tuple[str, int], dict[str, Any]]] = {row.title: {} for row in rows}
    for key, run in kept.items():
        title, column, seed = parts(key)
        by_row[title][column, seed] = run
    by_row = {title: runs for title, runs in by_row.items() if runs}
    common = sorted(set.intersection(*(set(runs) for runs in by_row.values())))
    return common, by_row if common else {}


def bound_table(
    place: Place, rows: list[Row], columns: list[str], kept: Kept, before: dict[str, Any], may_measure: bool,
    paper: Published | None,
) -> Section:  # fmt: skip
    """Source error, proxy A-distance, joint error and target error, mean over tasks and seeds."""
    found: dict[str, Any] = {}
    common, by_row = _common(rows, kept)
    for title, those in by_row.items():
        runs = [those[task] for task in common]
        found[title] = {
            "source_error": round(100 - statistics.mean(run["source_accuracy"] for run in runs), 2),
            "proxy_a_distance": round(statistics.mean(run["proxy_a_distance"] for run in runs), 3),
            "oracle_joint_error": round(statistics.mean(run["oracle_joint_error"] for run in runs), 2),
            "target_error": round(100 - statistics.mean(run["accuracy"] for run in runs), 2),
        }
    lines = [
        "The ingredients of the bound ε_t ≤ ε_s + ½ d + λ*, all in percent, mean over the tasks and seeds that all rows"
        f" have ({counted(len(common), 'run')} of each). ε_s is of the source's test split; where it has none it is the"
        " error on the rows trained on, which says little. d_A is the proxy distance between the domains' features"
        " (½ d_A is 0 if they are alike and 100 if they are apart), and stands for d without being a bound of it. λ* is"
        " an oracle: the error, on halves kept apart and summed over both domains, of a linear classifier of the"
        " features fitted with the labels of both.",
        "",
        "| | ε_s | ½ d_A | λ* (oracle) | their sum | ε_t |",
        "|---|---|---|---|---|---|",
    ]
    for title, said in found.items():
        parts = said["source_error"], 50 * said["proxy_a_distance"], said["oracle_joint_error"]
        numbers = (*parts, sum(parts), said["target_error"])
        lines.append(f"| {title} | " + " | ".join(f"{number:.1f}" for number in numbers) + " |")
    if len({said["target_error"] for said in found.values()}) > 2:
        from scipy.stats import spearmanr

        sums = [v["source_error"] + 50 * v["proxy_a_distance"] + v["oracle_joint_error"] for v in found.values()]
        errors = [v["target_error"] for v in found.values()]
        together = float(spearmanr(sums, errors).statistic)
        least = "A sum above 100 bounds nothing. " if max(sums) > 100 else ""
        lines += ["", f"{least}Over the rows, the rank correlation between their sum and ε_t is {together:+.2f}."]
    panels = {
        "½ d_A, %": {title: 50 * said["proxy_a_distance"] for title, said in found.items()},
        "λ* (oracle), %": {title: said["oracle_joint_error"] for title, said in found.items()},
    }
    return "\n".join(lines), found, panels
