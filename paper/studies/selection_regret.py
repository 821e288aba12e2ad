"""How well validators choose hyper-parameters without target labels: pools of candidates on five tasks.

A pool is the paper's λ0 × β grid on CDAN+E with TSA, and source-only. Accuracies only judge the choices (oracle).
"""

from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from paper.jobs import Job, Workspace
from paper.results_file import Results, parts
from paper.rows import Row
from tsadapt.errors import UserError
from tsadapt.files import number
from tsadapt.report.figures import Surface, draw_sensitivity
from tsadapt.selection.select import CONSENSUS, choose, oracle_judgement
from tsadapt.sweep.choice import oracle_accuracies, read_candidates, reference_among
from tsadapt.sweep.plan import PAPER_GRID, SOURCE_ONLY, Planned, grid, parse_axes
from tsadapt.sweep.runner import run_all

__all__ = ["POOL", "describe_regrets", "draw_choices", "pool_of", "score_pool", "settings_of_pool"]

VALIDATORS = 2
"""Raised when the formula of a validator changes: pools are then scored anew. 2: iwcv divides by the sum of weights."""

POOL = 1 + len(grid(parse_axes(PAPER_GRID)))


def pool_of(job: Job, folder: Path) -> list[Planned]:
    """The runs of a task; source-only is the first."""
    settings = [SOURCE_ONLY, *grid(parse_axes(PAPER_GRID))]
    return [Planned.of(job.config, one, folder) for one in settings]


def settings_of_pool(job: Job, quick: bool) -> dict[str, Any]:
    """What the pool and its scores depend on beside the config."""
    return {"grid": [*PAPER_GRID], "validators": VALIDATORS}


def score_pool(job: Job, space: Workspace) -> dict[str, Any]:
    """Train a pool, and score it by every validator, with and without the guard against collapsed candidates."""
    planned = pool_of(job, space.folder)
    if failed := run_all(planned, space.jobs):
        raise UserError("; ".join(f"{folder}: {why}" for folder, why in failed.items()))
    candidates = [max(read_candidates([one.out]), key=lambda candidate: candidate.step) for one in planned]
    predictions, accuracies = [c.predictions for c in candidates], oracle_accuracies(candidates)
    assert accuracies is not None
    assert reference_among(candidates) == 0
    guarded = choose(predictions, CONSENSUS, 0)
    bare = choose(predictions, "source-accuracy", guard=False)
    return {
        "source_only_accuracy": float(accuracies[0]),
        "best_accuracy": float(accuracies.max()),
        "chosen": guarded.chosen,
        "why": guarded.why,
        "collapsed": {str(i): why for i, why in guarded.out.items()},
        "candidates": [
            {
                "hash": one.config.hash(),
                "settings": {name: value for name, value in one.overrides.items() if value not in ((), {})},
                "oracle_accuracy": float(accuracy),
                "scores": {name: number(values[i]) for name, values in guarded.scores.items()},
            }
            for i, (one, accuracy) in enumerate(zip(planned, accuracies, strict=True))
        ],
        "with_guard": _as_json(oracle_judgement(guarded, accuracies)),
        "without_guard": _as_json(oracle_judgement(bare, accuracies)),
    }


def _as_json(judged: dict[str, dict[str, float]]) -> dict[str, dict[str, float | None]]:
    return {name: {what: number(value) for what, value in numbers.items()} for name, numbers in judged.items()}


def describe_regrets(results: Results, extra: dict[str, Any]) -> str:
    """Regrets of every validator, and the pools."""
    pools = {parts(key).column: run for key, run in results.items()}
    return f"{_regrets(pools)}\n\n{_pools(pools)}"


def _regrets(pools: Results) -> str:
    first, count = next(iter(pools.values())), len(next(iter(pools.values()))["candidates"])
    regrets = {
        name: [100 * pool["with_guard"][name]["regret"] for pool in pools.values()] for name in first["with_guard"]
    }
    head = ["validator", *pools, "mean", "worst", "mean without guard", "rank correlation"]
    lines = [
        f"Regret: by how many points of target accuracy a validator's choice among {count} candidates is below the"
        " best of them (oracle). A guard excludes collapsed candidates, except in the column without it. Rank"
        " correlation: of the validator's scores with target accuracy, mean over the tasks. Last step, one seed.",
        "",
        f"| {' | '.join(head)} |",
        "|---|" + "---|" * (len(head) - 1),
    ]
    for name in sorted(regrets, key=lambda name: mean(regrets[name])):
        cells = [f"{regret:.1f}" for regret in (*regrets[name], mean(regrets[name]), max(regrets[name]))]
        bare = [pool["without_guard"][name]["regret"] for pool in pools.values() if name in pool["without_guard"]]
        cells.append(f"{100 * mean(bare):.1f}" if bare else "–")
        correlations = [pool["with_guard"][name]["rank_correlation"] for pool in pools.values()]
        known = [correlation for correlation in correlations if correlation is not None]
        cells.append(f"{mean(known):.2f}" if known else "–")
        lines.append(f"| {'**consensus**' if name == CONSENSUS else name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _pools(pools: Results) -> str:
    lines = [
        "| task | source-only | chosen by consensus | best (oracle) | worst (oracle) | collapsed |",
        "|---|---|---|---|---|---|",
    ]
    for task, pool in pools.items():
        chosen = pool["candidates"][pool["chosen"]]
        settings = ", ".join(f"{name} {value}" for name, value in chosen["settings"].items())
        worst = min(candidate["oracle_accuracy"] for candidate in pool["candidates"][1:])
        accuracies = (pool["source_only_accuracy"], chosen["oracle_accuracy"], pool["best_accuracy"], worst)
        a, b, c, d = (f"{100 * accuracy:.1f}" for accuracy in accuracies)
        lines.append(f"| {task} | {a} | {b} ({settings}) | {c} | {d} | {len(pool['collapsed'])} |")
    return "\n".join(lines)


def draw_choices(results: Results, rows: list[Row], path: Path) -> None:
    """Target accuracy over λ0 and β, the choice framed, a map for each task."""
    draw_sensitivity({parts(key).column: _surface(run) for key, run in results.items()}, path)


def _surface(pool: dict[str, Any]) -> Surface:
    in_grid = {i: c["settings"] for i, c in enumerate(pool["candidates"]) if "lambda0" in c["settings"]}
    strengths, betas = (sorted({settings[name] for settings in in_grid.values()}) for name in ("lambda0", "beta"))
    accuracy, chosen = np.zeros((len(strengths), len(betas))), None
    for i, settings in in_grid.items():
        at = strengths.index(settings["lambda0"]), betas.index(settings["beta"])
        accuracy[at] = 100 * pool["candidates"][i]["oracle_accuracy"]
        chosen = at if i == pool["chosen"] else chosen
    return Surface(strengths, betas, accuracy, {"source-only": 100 * pool["source_only_accuracy"]}, chosen)
