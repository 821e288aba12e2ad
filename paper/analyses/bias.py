"""How far estimates of Δμ and Σ_t lie from the ideal: the memory's, and the iterative one's (the paper's Fig. on bias).

The ideal is of a fresh pass of all rows through the network as it stands, in training mode as the estimates' rows.
Both estimates watch the same trainer, which uses the memory. The memory begins with a pass over all rows, as it does
in every run; the iterative estimate begins with nothing, as its definition has it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from paper.jobs import Job, Workspace, data_of_task
from paper.protocols import on_this_machine
from paper.results_file import Results, parts
from paper.rows import Row
from tsadapt.core import ClassMoments, FeatureMemory, IterativeMoments
from tsadapt.errors import counted
from tsadapt.models.normalisation import batch_statistics
from tsadapt.objectives.base import Outputs
from tsadapt.report.figures import draw_curves
from tsadapt.runs import checkpoint
from tsadapt.training.setup import Task, make_task, make_trainer
from tsadapt.training.trainer import Trainer

__all__ = ["bias_of_job", "describe_bias", "draw_bias", "estimation_bias", "moment_errors"]

PARTS = {"Δμ": "mean_difference", "Σ": "covariance"}


def moment_errors(
    source: ClassMoments, target: ClassMoments, ideal_s: ClassMoments, ideal_t: ClassMoments
) -> tuple[float, float]:
    """Mean over the classes of ‖Δμ − Δμ_ideal‖₂ and ‖Σ_t − Σ_t,ideal‖_F; classes empty in the ideal are left out."""
    there = (ideal_s.count > 0) & (ideal_t.count > 0)
    shift = (target.mean.double() - source.mean.double()) - (ideal_t.mean.double() - ideal_s.mean.double())
    spread = target.covariance.double() - ideal_t.covariance.double()
    return float(shift[there].norm(dim=1).mean()), float(spread[there].flatten(1).norm(dim=1).mean())


def estimation_bias(
    task: Task, folder: Path | None = None, watch: Callable[[Trainer], object] = bool
) -> list[dict[str, Any]]:
    """One entry for each epoch of the target: its number and step, and the errors of both estimates.

    The training is that of `fit`, step by step; `watch` is called with it at its end. With a `folder` for checkpoints,
    what was stopped goes on where it was, to the same bits, if its data is still the same.
    """
    trainer = make_trainer(task)
    model = trainer.model
    iterative = IterativeMoments(model.classes, model.head_dim), IterativeMoments(model.classes, model.head_dim)
    memory = (
        cast("FeatureMemory", trainer.statistics.of("source", "memory", 0)),
        cast("FeatureMemory", trainer.statistics.of("target", "memory", 0)),
    )
    data = [task.source.train.fingerprint(), task.target.train.fingerprint()]
    found: list[dict[str, Any]] = []
    there = None if folder is None else checkpoint.latest(folder)[0]
    if there is not None and there[1]["data"] == data:
        trainer.load(there[1]["trainer"])
        for estimate, state in zip(iterative, there[1]["iterative"], strict=True):
            estimate.load_state_dict(state)
        found = there[1]["found"]
    else:
        trainer.fill_memory()
    into_memory = trainer.statistics.observe

    def observe(out: Outputs, filling: bool = False) -> None:
        into_memory(out, filling)
        for estimate, (_, features, labels) in zip(iterative, _rows(out), strict=True):
            estimate.update(features, labels)

    trainer.statistics.observe = observe  # type: ignore[method-assign]
    epoch_length = -(-len(task.target.train) // (task.config.target_batch_size or 1))
    saved = trainer.at
    while trainer.at < trainer.steps:
        trainer.step()
        if trainer.at % epoch_length == 0:
            ideal = _ideal(trainer, memory)
            by_memory = moment_errors(memory[0].moments(), memory[1].moments(), *ideal)
            by_sums = moment_errors(iterative[0].moments(), iterative[1].moments(), *ideal)
            found.append(
                {
                    "epoch": trainer.at // epoch_length,
                    "step": trainer.at,
                    "memory": {"mean_difference": by_memory[0], "covariance": by_memory[1]},
                    "iterative": {"mean_difference": by_sums[0], "covariance": by_sums[1]},
                }
            )
            if folder is not None and trainer.at - saved >= task.config.checkpoint_every:
                estimates = [estimate.state_dict() for estimate in iterative]
                state = {"trainer": trainer.state(), "iterative": estimates, "data": data, "found": found}
                checkpoint.save(folder, trainer.at, state)
                saved = trainer.at
    watch(trainer)
    return found


@torch.no_grad()
def _ideal(trainer: Trainer, like: tuple[FeatureMemory, FeatureMemory]) -> tuple[ClassMoments, ClassMoments]:
    """Moments of all rows as the network sees them now, the target's by their present pseudo-labels."""
    source, target = (FeatureMemory(m.size, m.dim, m.classes, second_moments=False) for m in like)
    with batch_statistics(trainer.model):
        for module in trainer.model.modules():  # as the estimates have seen it
            if isinstance(module, nn.modules.dropout._DropoutNd):
                module.train()
        for batch in trainer.batches.all_rows():
            for memory, rows in zip((source, target), _rows(trainer.forward(batch, trainer.progress)[0]), strict=True):
                memory.write(*rows)
    trainer.model.train()
    return source.moments(), target.moments()


def _rows(out: Outputs) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Index, features and (pseudo-)labels of the batch's rows, of the source and of the target."""
    head, target = out.heads[0], out.target
    assert out.source.labels is not None
    assert target is not None
    assert head.target is not None
    return [
        (head.source.index, head.source.features, out.source.labels),
        (head.target.index, head.target.features, target.logits.detach().argmax(1)),
    ]


def bias_of_job(job: Job, space: Workspace) -> dict[str, Any]:
    """The errors of both estimates, epoch by epoch."""
    task = make_task(on_this_machine(job.config))
    return {"epochs": estimation_bias(task, space.folder / "bias" / job.config.hash()), **data_of_task(task)}


def describe_bias(results: Results, extra: dict[str, Any]) -> str:
    """Whether the memory's estimate is closer to the ideal, for each task."""
    return "\n\n".join(
        _closer(task, runs) for task, runs in _by_task(results).items() if len(next(iter(runs.values()))["epochs"]) > 1
    )


def _closer(task: str, runs: dict[int, dict[str, Any]]) -> str:
    texts = []
    for sign, what in PARTS.items():
        missed = [
            (seed, epoch)
            for seed, run in runs.items()
            for epoch in run["epochs"][1:]
            if epoch["memory"][what] >= epoch["iterative"][what]
        ]
        points = sum(len(run["epochs"]) - 1 for run in runs.values())
        memory, iterative = (_mean_curve([*runs.values()], name, what)[1:] for name in ("memory", "iterative"))
        worst = ", ".join(
            f"seed {seed} epoch {e['epoch']}: {e['memory'][what]:.3g} against {e['iterative'][what]:.3g}"
            for seed, e in missed[:6]
        )
        texts.append(
            f"For {sign}, the memory's estimate is closer to the ideal than the iterative one at"
            f" {points - len(missed)} of {points} epochs after the first ({counted(len(runs), 'run')})"
            + (f"; exceptions: {worst}{' …' if len(missed) > 6 else ''}" if missed else "")
            + f"; averaged over the runs, at {int((memory < iterative).sum())} of {len(memory)}."
        )
    return f"{task}: " + " ".join(texts)


def _by_task(results: Results) -> dict[str, dict[int, dict[str, Any]]]:
    """The runs of each task, by their seeds."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for key, run in results.items():
        _, task, seed = parts(key)
        found.setdefault(task, {})[seed] = run
    return found


def _mean_curve(runs: list[dict[str, Any]], name: str, what: str) -> np.ndarray:
    curve: np.ndarray = np.mean([[epoch[name][what] for epoch in run["epochs"]] for run in runs], axis=0)
    return curve


def draw_bias(results: Results, rows: list[Row], path: Path) -> None:
    """Mean over the seeds of both errors, over the epochs, two panels for each task."""
    curves = {
        f"{title}\n{task}, {counted(len(runs), 'seed')}": {
            name: _mean_curve([*runs.values()], name, what) for name in ("iterative", "memory")
        }
        for task, runs in _by_task(results).items()
        for title, what in (("mean difference Δμ", "mean_difference"), ("target covariance Σ", "covariance"))
    }
    draw_curves(curves, "epoch", "distance to the ideal estimate", path)
