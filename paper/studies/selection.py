"""How well hyper-parameters are chosen without target labels: pools of candidates on five tasks, all validators.

    python -m paper.studies.selection                 train what is missing, score the pools, make tables and picture
    python -m paper.studies.selection --jobs 2        two runs side by side
    python -m paper.studies.selection --score         score the pools whose runs are all there, without training
    python -m paper.studies.selection --table         only make tables and picture of what was scored

A pool is the paper's λ0 × β grid on CDAN+E with TSA, and source-only. A tenth of the source is held out. PACS features
are read from TSADAPT_DATA. Runs lie under runs/selection and are never done twice; what is kept of a pool is a file
under paper/results/selection. Accuracies are of the last step, and only judge the choices (oracle).
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from tsadapt.config import RunConfig
from tsadapt.files import number, write_atomically, write_json
from tsadapt.report.figures import Surface, draw_sensitivity
from tsadapt.report.tables import fill
from tsadapt.selection.select import CONSENSUS, choose, oracle_judgement
from tsadapt.sweep.choice import oracle_accuracies, read_candidates, reference_among
from tsadapt.sweep.plan import PAPER_GRID, SOURCE_ONLY, Planned, grid, parse_axes
from tsadapt.sweep.runner import run_all

COMMAND = "python -m paper.studies.selection"
RESULTS = Path("paper/results/selection")
RUNS = Path("runs/selection")


def pacs(domain: str) -> str:
    return str(Path(os.environ.get("TSADAPT_DATA", "")) / "features" / f"pacs_{domain}.npz")


TASKS = {
    "PACS photo → cartoon": (pacs("photo"), pacs("cartoon")),
    "UCI → MNIST-5k": ("digits:uci", "digits:mnist-5k"),
    "PACS art → cartoon": (pacs("art_painting"), pacs("cartoon")),
    "MNIST-5k → UCI": ("digits:mnist-5k", "digits:uci"),
    "PACS cartoon → photo": (pacs("cartoon"), pacs("photo")),
}


@dataclass(frozen=True)
class Pool:
    """The runs of a task; source-only is the first."""

    task: str
    key: str
    planned: list[Planned]

    @property
    def result(self) -> Path:
        """What is kept of it."""
        return RESULTS / f"{self.key}.json"


def pool_of(task: str) -> Pool:
    source, target = TASKS[task]
    base = RunConfig(source, target, method="cdan+e", source_term="tsa", mi=True, holdout=0.1, device="cpu")
    settings = [SOURCE_ONLY, *grid(parse_axes(PAPER_GRID))]
    key = "-".join(word for word in task.lower().split() if word != "→")
    return Pool(task, key, [Planned.of(base, one, RUNS / key) for one in settings])


def score(pool: Pool) -> None:
    """Score a pool by every validator, with and without the guard, and keep it all."""
    candidates = read_candidates([one.out for one in pool.planned])
    predictions, accuracies = [c.predictions for c in candidates], oracle_accuracies(candidates)
    assert accuracies is not None
    reference = reference_among(candidates)
    assert reference == 0
    guarded = choose(predictions, CONSENSUS, reference)
    bare = choose(predictions, "source-accuracy", guard=False)
    kept = {
        "task": pool.task,
        "command": COMMAND,
        "source_only_accuracy": float(accuracies[0]),
        "best_accuracy": float(accuracies.max()),
        "chosen": guarded.chosen,
        "why": guarded.why,
        "collapsed": {str(i): why for i, why in guarded.out.items()},
        "candidates": [
            {
                "hash": one.out.name,
                "settings": {name: value for name, value in one.overrides.items() if value != ()},
                "oracle_accuracy": float(accuracy),
                "scores": {name: number(values[i]) for name, values in guarded.scores.items()},
            }
            for i, (one, accuracy) in enumerate(zip(pool.planned, accuracies, strict=True))
        ],
        "with_guard": _numbers(oracle_judgement(guarded, accuracies)),
        "without_guard": _numbers(oracle_judgement(bare, accuracies)),
    }
    write_json(pool.result, kept)
    print(f"{pool.task}: {guarded.why}, {accuracies[guarded.chosen]:.1%} of at most {accuracies.max():.1%}", flush=True)


def _numbers(judged: dict[str, dict[str, float]]) -> dict[str, dict[str, float | None]]:
    return {name: {key: number(value) for key, value in said.items()} for name, said in judged.items()}


def read_results() -> list[dict[str, Any]]:
    """What was scored so far, in the order of the tasks."""
    files = [pool_of(task).result for task in TASKS]
    return [json.loads(path.read_text(encoding="utf-8")) for path in files if path.exists()]


def page(results: Sequence[dict[str, Any]]) -> str:
    """Regrets of every validator, and the pools, as Markdown."""
    names = [*results[0]["with_guard"]]
    regrets = {name: [100 * r["with_guard"][name]["regret"] for r in results] for name in names}
    head = ["validator", *(r["task"] for r in results), "mean", "worst", "mean without guard", "rank correlation"]
    lines = [
        "Made by `python -m paper.studies.selection`: regret, the points of target accuracy by which a validator's choice"
        " among 26 candidates lies below the best of them (oracle). Collapsed candidates are out of the race, but for"
        " the last but one column. Last step, one seed.",
        "",
        f"| {' | '.join(head)} |",
        "|---|" + "---|" * (len(head) - 1),
    ]
    for name in sorted(names, key=lambda name: mean(regrets[name])):
        cells = [f"{regret:.1f}" for regret in regrets[name]]
        cells += [f"{mean(regrets[name]):.1f}", f"{max(regrets[name]):.1f}"]
        bare = [r["without_guard"][name]["regret"] for r in results if name in r["without_guard"]]
        cells.append(f"{100 * mean(bare):.1f}" if bare else "–")
        correlations = [r["with_guard"][name]["rank_correlation"] for r in results]
        known = [c for c in correlations if c is not None]
        cells.append(f"{mean(known):.2f}" if known else "–")
        lines.append(f"| {'**consensus**' if name == CONSENSUS else name} | {' | '.join(cells)} |")
    lines += [
        "",
        "| task | source-only | chosen by consensus | best (oracle) | worst (oracle) | collapsed |",
        "|---|---|---|---|---|---|",
    ]
    for r in results:
        chosen = r["candidates"][r["chosen"]]
        settings = ", ".join(f"{name} {value}" for name, value in chosen["settings"].items())
        worst = min(c["oracle_accuracy"] for c in r["candidates"][1:])
        accuracies = (r["source_only_accuracy"], chosen["oracle_accuracy"], r["best_accuracy"], worst)
        a, b, c, d = (f"{100 * accuracy:.1f}" for accuracy in accuracies)
        lines.append(f"| {r['task']} | {a} | {b} ({settings}) | {c} | {d} | {len(r['collapsed'])} |")
    return "\n".join([*lines, ""])


def write_tables() -> None:
    """Write the page and the picture of what is there."""
    results = read_results()
    if not results:
        print("no pool is scored yet")
        return
    write_atomically(RESULTS / "selection.md", page(results))
    docs = Path("docs/selection.md")
    write_atomically(docs, fill(docs.read_text(encoding="utf-8"), COMMAND, page(results).rstrip()))
    draw_sensitivity({r["task"]: _surface(r) for r in results}, RESULTS / "sensitivity.png")
    print(f"{len(results)} of {len(TASKS)} pools; written to {RESULTS / 'selection.md'}")


def _surface(result: dict[str, Any]) -> Surface:
    axes = parse_axes(PAPER_GRID)
    rows, columns = [*axes["lambda0"]], [*axes["beta"]]  # type: ignore[misc]
    table, place = np.zeros((len(rows), len(columns))), None
    for i, candidate in enumerate(result["candidates"]):
        if "lambda0" in candidate["settings"]:
            at = rows.index(candidate["settings"]["lambda0"]), columns.index(candidate["settings"]["beta"])
            table[at] = 100 * candidate["oracle_accuracy"]
            place = at if i == result["chosen"] else place
    return Surface(rows, columns, table, {"source-only": 100 * result["source_only_accuracy"]}, place)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--score", action="store_true", help="score what is there, train nothing")
    parser.add_argument("--table", action="store_true", help="only make the tables and the picture")
    arguments = parser.parse_args()
    for task in TASKS if not arguments.table else ():
        pool = pool_of(task)
        if not arguments.score and not pool.result.exists():
            failed = run_all(pool.planned, arguments.jobs)
            print(f"{task}: trained; failed: {failed or 'none'}", flush=True)
        if all(one.done for one in pool.planned):
            score(pool)
    write_tables()


if __name__ == "__main__":
    main()
