"""What some tables say beside accuracies."""

import statistics
from typing import Any

from tsadapt.analysis.cost import step_costs
from tsadapt.analysis.footprint import footprint
from tsadapt.config import RunConfig
from tsadapt.recipes.places import Place
from tsadapt.recipes.rows import Row
from tsadapt.recipes.table import Kept

__all__ = ["bound_table", "costs", "footprints"]

Section = tuple[str, dict[str, Any]]


def footprints(place: Place, rows: list[Row], columns: list[str], kept: Kept, before: dict[str, Any]) -> Section:
    """Bytes of TSA's statistics and peak memory of a fresh process, on the first task."""
    configs = _configs(place, rows, columns)
    found = _again(before, configs) or {title: footprint(config) for title, config in configs.items()}
    lines = [
        f"Memory on {columns[0]}, MB: what the statistics keep, the network's parameters, and the peak of a fresh"
        " process (the data and the libraries included). Prediction needs no statistics.",
        "",
        "| | statistics | parameters | peak of the process |",
        "|---|---|---|---|",
        *(f"| {t} | {v['statistics_mb']} | {v['model_mb']} | {v['peak_mb']} |" for t, v in found.items()),
    ]
    return "\n".join(lines), _of(found, configs)


def costs(place: Place, rows: list[Row], columns: list[str], kept: Kept, before: dict[str, Any]) -> Section:
    """Milliseconds of a step, in turns within one process, as ratios to source-only."""
    configs = _configs(place, rows, columns)
    found = _again(before, configs) or step_costs(configs)
    plain = found[rows[0].title]
    lines = [
        f"A step on {columns[0]}, in turns within one process (median).",
        "",
        "| | ms | to source-only |",
        "|---|---|---|",
        *(f"| {title} | {ms} | {ms / plain:.2f}× |" for title, ms in found.items()),
    ]
    return "\n".join(lines), _of(found, configs)


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


def bound_table(place: Place, rows: list[Row], columns: list[str], kept: Kept, before: dict[str, Any]) -> Section:
    """Source error, proxy A-distance, joint error and target error, mean over tasks and seeds."""
    found: dict[str, Any] = {}
    by_row = {
        row.title: {key.partition(" | ")[2]: run for key, run in kept.items() if key.startswith(f"{row.title} | ")}
        for row in rows
    }
    by_row = {title: runs for title, runs in by_row.items() if runs}
    common = set.intersection(*(set(runs) for runs in by_row.values()))
    for title, those in by_row.items():
        runs = [those[task] for task in sorted(common)]
        if runs:
            found[title] = {
                "source_error": round(100 - statistics.mean(run["source_accuracy"] for run in runs), 2),
                "proxy_a_distance": round(statistics.mean(run["proxy_a_distance"] for run in runs), 3),
                "oracle_joint_error": round(statistics.mean(run["oracle_joint_error"] for run in runs), 2),
                "target_error": round(100 - statistics.mean(run["accuracy"] for run in runs), 2),
            }
    lines = [
        f"The ingredients of the bound ε_t ≤ ε_s + ½ d + λ*, mean over the {len(common)} tasks and seeds that all rows"
        " have. ε_s and ε_t in percent; the"
        " source is judged on its test split, or on the rows it was trained on where it has none. d_A is the proxy"
        " distance between the domains' features (0 alike, 2 apart). λ* is an oracle: the error, on halves kept apart"
        " and summed over both domains, of a linear classifier of the features fitted with the labels of both.",
        "",
        "| | ε_s | d_A | λ* (oracle) | ε_t |",
        "|---|---|---|---|---|",
        *(
            f"| {t} | {v['source_error']:.1f} | {v['proxy_a_distance']:.2f} | {v['oracle_joint_error']:.1f} |"
            f" {v['target_error']:.1f} |"
            for t, v in found.items()
        ),
    ]
    return "\n".join(lines), found
