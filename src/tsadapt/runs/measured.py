"""What the metrics of a run say: of the target, of a few labelled rows of it, of the source, and of the candidates."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tsadapt.errors import counted
from tsadapt.files import number
from tsadapt.runs.candidates import Candidates
from tsadapt.runs.evaluate import score, score_rows, without_rows
from tsadapt.runs.model import Predicted
from tsadapt.runs.reference import Reference, source_reference
from tsadapt.selection.density import proxy_a_distance
from tsadapt.selection.select import CONSENSUS
from tsadapt.training.setup import Task

__all__ = ["compared", "measured", "predicted_shares"]

Tell = Callable[[str], object]


def measured(
    task: Task, candidates: Candidates, made: Sequence[Predicted], as_trained: Predicted | None, tell: Tell
) -> dict[str, Any]:
    """Metrics at the last step, from predictions for the source's test rows (if there is one) and the target's.

    `as_trained` is what the network made of the source before a method normalised it by the target.
    """
    found: dict[str, Any] = {"target": _score(task, made[-1])}
    if task.known is not None:
        found["target_labels"] = _few(task, candidates, tell)
    if as_trained is not None:
        found |= _on_source(task, made[0], made[-1], as_trained, tell)
    return found


def _few(task: Task, candidates: Candidates, tell: Tell) -> dict[str, Any]:
    """What the labelled target rows say; nothing if they were trained on."""
    known = task.known
    assert known is not None
    found = {"rows": len(known.rows), "used_in_training": known.used}
    if known.used:
        tell(f"note: {counted(len(known.rows), 'target row')} trained on with their labels: they measure nothing.")
        return found
    return found | score_rows(candidates.predict(task.target.train), known.labels.numpy())


def _score(task: Task, on_target: Predicted) -> dict[str, Any]:
    """Metrics on the target's rows but for those that were trained on with their labels."""
    target, known = task.target.test, task.known
    if known is None or not known.used or target is not task.target.train:
        return score(on_target, target, task.classes)
    return score(*without_rows(on_target, target, known.rows), task.classes)


def compared(candidates: Candidates, on_target: Predicted, task: Task) -> dict[str, Any]:
    """The candidate that validators select, and, if the target has labels, the best by those: the oracle."""
    step, why = candidates.choose()
    selected = _score(task, candidates.on_test(step, on_target))
    found: dict[str, Any] = {"selected": {"step": step, "by": CONSENSUS, "why": why, "target": selected}}
    if task.target.test.y is not None:
        scores = {s: _score(task, candidates.on_test(s, on_target)) for s in candidates.steps}
        by_step = {s: metrics["accuracy"] for s, metrics in scores.items()}
        best = max(by_step, key=lambda s: by_step[s])
        found["oracle"] = {
            "step": best, "accuracy": by_step[best], "by_step": {str(s): a for s, a in by_step.items()},
            "best_mean_class_accuracy": max(metrics["mean_class_accuracy"] for metrics in scores.values()),
        }  # fmt: skip
    return found


def _on_source(
    task: Task, on_source: Predicted, on_target: Predicted, as_trained: Predicted, tell: Tell
) -> dict[str, Any]:
    """What the metrics say of the source: how it is predicted, and how far it is from the target."""
    source = task.source.test
    distance = proxy_a_distance(on_source.features, on_target.features, task.config.seed)
    scored = score(on_source, source, task.classes)
    if as_trained is not on_source and "accuracy" in scored:
        scored["accuracy_as_trained"] = score(as_trained, source, task.classes)["accuracy"]
    _judge_source(scored, source_reference(task.source.train, source, as_trained, task.classes), tell)
    return {"source": scored, "proxy_a_distance": number(distance)}


def _judge_source(scored: dict[str, Any], reference: Reference | None, tell: Tell) -> None:
    """Note in the metrics of the source what is easily reached there, and say so if the network is far below."""
    if reference is None or "accuracy" not in scored:
        return
    accuracy = scored.get("accuracy_as_trained", scored["accuracy"])
    scored["reference_accuracy"] = reference.accuracy
    scored["far_below_reference"] = reference.far_above(accuracy)
    if scored["far_below_reference"]:
        tell(
            f"note: the source accuracy is {accuracy:.0%}, far below the {reference.accuracy:.0%} that the nearest"
            f" class mean of the {reference.of} reaches: training failed. Try a smaller --lambda0 or --lr, or more"
            " --steps."
        )


def predicted_shares(predicted: Predicted) -> torch.Tensor:
    """The share of each class (C,) among the predictions."""
    counts = torch.bincount(torch.from_numpy(predicted.guess), minlength=predicted.logits.shape[1]).double()
    return counts / counts.sum()
