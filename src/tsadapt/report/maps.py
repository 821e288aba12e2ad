"""Maps of both domains: the features of a run, and what they were before adaptation."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from tsadapt.data.types import match_labels
from tsadapt.report.page import Plane
from tsadapt.report.plane import embedded, some_rows
from tsadapt.report.trained_rows import TrainedRows
from tsadapt.runs.candidates import kept_source_rows
from tsadapt.runs.folder import RunFolder
from tsadapt.selection.predictions import Predictions

__all__ = ["Maps"]


class Maps:
    """Maps of runs; that of a run which stands for "before" in several is made once."""

    def __init__(self) -> None:
        self._points: dict[Path, np.ndarray] = {}

    def of(
        self,
        run: RunFolder,
        step: int,
        predictions: Predictions,
        source: TrainedRows | None,
        target: TrainedRows | None,
        before: RunFolder | None,
    ) -> tuple[Plane, ...]:
        """Features after adaptation; before it, those of source-only, or what went in, or of the first candidate."""
        guess = predictions.guess_t
        after = self._features(run, step, predictions, source, "after adaptation", f"features at step {step}", guess)
        if run.config.objective == "source-only":
            after = replace(after, title="the network's features")
        if before is not None:
            last = before.metrics["last"]["step"]
            reference = Predictions.read(before.predictions_file(last))
            if len(reference.features_t) == len(guess):
                text = f"features of source-only ({before.path.name})"
                return self._features(before, last, reference, source, "before adaptation", text, guess), after
        inputs = None if source is None or target is None else _of_inputs(source, target, guess)
        if inputs is not None:
            return inputs, after
        first = run.prediction_steps()[0]
        if first < step:
            early = Predictions.read(run.predictions_file(first))
            text = f"features at step {first}"
            return self._features(run, first, early, source, "early in training", text, early.guess_t), after
        return (after,)

    def _features(
        self,
        run: RunFolder,
        step: int,
        predictions: Predictions,
        source: TrainedRows | None,
        title: str,
        text: str,
        guess: np.ndarray,
    ) -> Plane:
        """Saved features of some rows; without the source's data, its points have no row and no class."""
        at_s, at_t = some_rows(len(predictions.features_s)), some_rows(len(predictions.features_t))
        rows, label = np.full(len(at_s), -1), np.full(len(at_s), -1)
        if source is not None and run.manifest["data"]["source"] == source.run.manifest["data"]["source"]:
            kept = kept_source_rows(len(source.domain), run.config.seed)
            if len(kept) == len(predictions.features_s):
                rows, label = kept[at_s], _labels(source)[kept[at_s]]
        file = run.predictions_file(step)
        if file not in self._points:
            self._points[file] = embedded(predictions.features_s[at_s], predictions.features_t[at_t])
        return _plane(title, text, self._points[file], rows, at_t, label, guess[at_t])


def _of_inputs(source: TrainedRows, target: TrainedRows, guess: np.ndarray) -> Plane | None:
    """What went into the part of the network that was trained, if it is there."""
    x_s, x_t = source.inputs(), target.inputs()
    if x_s is None or x_t is None or x_s.shape[1] != x_t.shape[1]:
        return None
    text = "the rows as given" if source.domain.kind == "vector" else "the pixels"
    text = "features of the backbone" if source.run.config.freeze_backbone else text
    at_s, at_t = some_rows(len(x_s)), some_rows(len(x_t))
    points = embedded(x_s[at_s], x_t[at_t])
    return _plane("before training", text, points, at_s, at_t, _labels(source)[at_s], guess[at_t])


def _labels(source: TrainedRows) -> np.ndarray:
    found: np.ndarray = match_labels(source.domain, tuple(source.run.manifest["classes"]))[0].numpy()
    return found


def _plane(
    title: str, text: str, points: np.ndarray, rows: np.ndarray, at_t: np.ndarray, label: np.ndarray, guess: np.ndarray
) -> Plane:
    target = np.arange(len(points)) >= len(rows)
    return Plane(title, text, points, target, np.concatenate([rows, at_t]), np.concatenate([label, guess]))
