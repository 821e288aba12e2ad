"""How long to train source-only: the accuracy on held-out source rows over the steps of one long run.

The rate of a step does not depend on the length of the run, so a run of t steps is the first t steps of a longer one.
The defaults (`tsadapt.models.networks.Length`) are set by the held-out rows; target labels only judge them (oracle).
"""

from math import sqrt
from pathlib import Path
from statistics import mean
from typing import Any

from paper.jobs import Job, Workspace, data_of_task
from paper.protocols import on_this_machine
from paper.results_file import Results, parts
from paper.rows import Row
from tsadapt.data.types import Domain
from tsadapt.errors import UserError, counted
from tsadapt.models.networks import NETWORKS
from tsadapt.report.figures import SOURCE, TARGET, pyplot, write_figure
from tsadapt.runs.evaluate import score
from tsadapt.runs.model import TrainedModel
from tsadapt.training.setup import make_task, make_trainer

__all__ = ["curve_of_job", "describe_lengths", "draw_lengths", "flat_from"]

EVERY = (10, 25, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1000, 1500, 2000, 3000)
"""Steps at which the network is judged, and the last one."""


def curve_of_job(job: Job, space: Workspace) -> dict[str, Any]:
    """Accuracy, %, on held-out source rows and (oracle) on the target, by step; and what the default depends on."""
    task = make_task(on_this_machine(job.config))
    trainer = make_trainer(task)
    if task.held is None:
        raise UserError("the length of training is judged on held-out rows: expected a protocol with a holdout.")
    model = TrainedModel(
        trainer.model, task.classes, task.architecture, task.source.train.columns, task.preprocessing, trainer.device
    )

    def accuracy(domain: Domain) -> float:
        found: float = score(model.forward(domain), domain, task.classes)["accuracy"]
        return round(100 * found, 2)

    held, oracle = dict[str, float](), dict[str, float]()
    for _ in trainer.loop():
        if trainer.at in EVERY or trainer.at == trainer.steps:
            held[str(trainer.at)], oracle[str(trainer.at)] = accuracy(task.held), accuracy(task.target.test)
    return {
        "network": task.config.network,
        "batch_size": task.config.batch_size,
        "classes": len(task.classes),
        "held_rows": len(task.held),
        "held_out": held,
        "oracle": oracle,
        **data_of_task(task),
    }


def flat_from(accuracies: dict[int, float], rows: int) -> int:
    """The first step whose accuracy, %, counted on `rows` rows, is within one standard error of the best.

    >>> flat_from({10: 50.0, 100: 89.0, 200: 90.0, 300: 90.1}, rows=400)
    100
    """
    best = max(accuracies.values())
    error = 100 * sqrt(max(best / 100 * (1 - best / 100), 0.25 / rows) / rows)
    return next(step for step, accuracy in sorted(accuracies.items()) if accuracy >= best - error)


def describe_lengths(results: Results, extra: dict[str, Any]) -> str:
    """A table with a row for each task: the default length beside the step from which held-out accuracy is flat."""
    lines = [
        "| | source rows | classes | held-out accuracy is flat from step | default steps | held-out accuracy there"
        " | at the end | target accuracy at the default (oracle) | at the end (oracle) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for task, runs in _by_task(results).items():
        held, oracle = _mean_curve(runs, "held_out"), _mean_curve(runs, "oracle")
        default, end = _default(runs[0]), max(held)
        at = min((step for step in held if step >= default), default=end)
        flat = flat_from(held, sum(run["held_rows"] for run in runs))
        cells = [
            task, f"{runs[0]['data']['source']['rows']:,}", runs[0]["classes"], f"{flat:,}", f"{default:,}",
            *(f"{value:.1f}" for value in (held[at], held[end], oracle[at], oracle[end])),
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    count = counted(max(map(len, _by_task(results).values())), "seed")
    text = (
        f"Means over {count}. Flat: within one standard error of the best of all measured steps. Accuracies at the"
        " default are those of the first measured step that is not shorter."
    )
    return "\n".join([*lines, "", text])


def draw_lengths(results: Results, rows: list[Row], path: Path) -> None:
    """Accuracy over the steps, a panel for each task, the default length as a line."""
    by_task = _by_task(results)
    wide = min(len(by_task), 4)
    high = -(-len(by_task) // wide)
    figure, axes = pyplot().subplots(
        high, wide, figsize=(0.6 + 2.9 * wide, 2.5 * high + 0.5), layout="constrained", squeeze=False
    )
    for axis in axes.flat[len(by_task) :]:
        axis.set_visible(False)
    for axis, (task, runs) in zip(axes.flat, by_task.items(), strict=False):
        for name, label, colour in (("held_out", "held-out source", SOURCE), ("oracle", "target (oracle)", TARGET)):
            curve = _mean_curve(runs, name)
            axis.plot([*curve], [*curve.values()], color=colour, label=label)
        axis.axvline(_default(runs[0]), color="#424242", linestyle=":", label="default length")
        axis.set(title=task, xscale="log", xlabel="steps", ylim=(0, 102))
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle("accuracy of source-only, %", fontsize=10)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    write_figure(figure, path)


def _default(run: dict[str, Any]) -> int:
    rows, classes, batch = run["data"]["source"]["rows"], run["classes"], run["batch_size"]
    return NETWORKS[run["network"]].length.steps(rows, classes, batch, adapts=False)


def _by_task(results: Results) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for key, run in results.items():
        found.setdefault(parts(key).column, []).append(run)
    return found


def _mean_curve(runs: list[dict[str, Any]], name: str) -> dict[int, float]:
    return {int(step): mean(run[name][step] for run in runs) for step in runs[0][name]}
