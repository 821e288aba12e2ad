"""The choice among trained runs: read their predictions, score them, and write the decision."""

import csv
import io
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tsadapt.config import RunConfig
from tsadapt.errors import UserError, counted
from tsadapt.files import csv_cells, number, write_atomically, write_json
from tsadapt.objectives.objective import full_settings
from tsadapt.runs.candidates import candidate_steps
from tsadapt.runs.folder import RunFolder, SweepFolder, read_json, write_sealed
from tsadapt.selection.predictions import Predictions
from tsadapt.selection.select import Choice, oracle_judgement
from tsadapt.sweep.plan import SOURCE_ONLY

__all__ = [
    "Candidate",
    "preferred_among",
    "read_candidates",
    "reference_among",
    "setting_of",
    "unfolded",
    "varying",
    "write_choice",
]


@dataclass(frozen=True)
class Candidate:
    """A trained run at one of its steps."""

    run: Path
    step: int
    config: RunConfig
    predictions: Predictions
    oracle_accuracy: float | None
    """Of the target's labels, where they are there: for the table, never for the choice."""


def read_candidates(runs: Sequence[Path], tell: Callable[[str], object] = str) -> list[Candidate]:
    """The candidates of run folders; a folder of a sweep stands for all its runs that are done.

    `tell` receives what a user should know about them.
    """
    found = []
    for run in unfolded(runs, tell):
        config, metrics = run.config, run.metrics
        if metrics.get("hash", config.hash()) != config.hash():
            raise UserError(f"{run.config_file} was changed after the run was trained: restore it, or train again.")
        last = metrics["last"]
        by_step = metrics.get("oracle", {}).get("by_step", {str(last["step"]): last["target"].get("accuracy")})
        steps = candidate_steps(config)
        if lost := [step for step in steps if not run.predictions_file(step).is_file()]:
            raise UserError(f"{run.path} has no predictions of step {lost[0]} to score: train it again.")
        for step in steps:
            predictions = Predictions.read(run.predictions_file(step))
            found.append(Candidate(run.path, step, config, predictions, by_step.get(str(step))))
    if taught := {candidate.run for candidate in found if candidate.config.use_target_labels}:
        tell(f"note: {counted(len(taught), 'run')} trained on labels of target rows: this is no choice without labels.")
    _check_one_task([candidate.run for candidate in found])
    return found


def _check_one_task(runs: Sequence[Path]) -> None:
    """Refuse runs whose classes or target rows differ: their predictions cannot be compared."""
    manifests = {run: RunFolder(run).manifest for run in runs}
    if lost := [run for run, manifest in manifests.items() if not manifest]:
        raise UserError(f"{RunFolder(lost[0]).manifest_file} is missing: train that run again.")
    first = manifests[runs[0]]
    for run, manifest in manifests.items():
        for what, a, b in (
            ("classes", first["classes"], manifest["classes"]),
            ("target rows", first["data"]["target"]["train"], manifest["data"]["target"]["train"]),
        ):
            if a != b:
                raise UserError(f"{runs[0]} and {run} cannot be compared: their {what} differ.")


def unfolded(runs: Sequence[Path], tell: Callable[[str], object] = str) -> list[RunFolder]:
    """The run folders that are done; the folder of a sweep stands for all of its own."""
    found: list[RunFolder] = []
    for path in runs:
        run, inner = RunFolder(path), SweepFolder(path).runs()
        done = [one for one in inner if one.done]
        if run.done:
            found.append(run)
        elif done:
            found += done
            if begun := len(inner) - len(done):
                tell(f"note: {counted(begun, 'run')} of {path} did not finish: left out. Repeat the sweep to finish.")
        elif not path.is_dir():
            raise UserError(f"No run at {path}: expected the folder that fit, sweep or adapt wrote (its --out).")
        else:
            if run.exists:
                _ = run.config  # refuses a folder of another revision
            hint = "its training did not finish" if run.exists else "it contains no run"
            raise UserError(f"{path} cannot be scored: {hint}.")
    return [*dict.fromkeys(found)]


def reference_among(candidates: Sequence[Candidate]) -> int | None:
    """The place of source-only, at its last step; None if there is none."""
    plain = {name: value for name, value in SOURCE_ONLY.items() if name != "term_weight"}
    places = [i for i, c in enumerate(candidates) if all(getattr(c.config, k) == v for k, v in plain.items())]
    return max(places, key=lambda i: candidates[i].step) if places else None


def preferred_among(candidates: Sequence[Candidate], folder: Path) -> int | None:
    """The place of the candidate that the choice of a folder preferred; None if it preferred none."""
    file = SweepFolder(folder).choice_file
    name = read_json(file, ("by",)).get("preferred") if file.is_file() else None
    return next((i for i, c in enumerate(candidates) if name is not None and _name(c) == name), None)


def varying(candidates: Sequence[Candidate]) -> list[str]:
    """The settings in which the candidates that have them differ."""
    keys = [_settings(c.config) for c in candidates]
    names = dict.fromkeys(name for k in keys for name in k)
    return [name for name in names if len({json.dumps(k[name]) for k in keys if name in k}) > 1]


def setting_of(config: RunConfig, name: str) -> Any:
    """The value that a setting has in a run; None if nothing of the run uses it."""
    return _settings(config).get(name)


def _settings(config: RunConfig) -> dict[str, Any]:
    """Every setting of a run, those of terms by their plain names (TERM.NAME where two terms differ)."""
    found = {k: v for k, v in config.result_keys().items() if "." not in k}
    for term, values in full_settings(config).items():
        for name, value in values.items():
            found[name if found.get(name, value) == value else f"{term}.{name}"] = value
    return found


def write_choice(
    folder: Path, candidates: Sequence[Candidate], choice: Choice, overrides: dict[str, Any], failed: dict[str, str]
) -> None:
    """Write choice.json, scores.csv, and oracle.json if the target's labels are known; the first two without them."""
    if RunFolder(folder).exists:
        raise UserError(f"{folder} is a run folder: choose another --out for the choice.")
    chosen, sweep = candidates[choice.chosen], SweepFolder(folder)
    write_sealed(
        sweep.choice_file,
        {
            "by": choice.by,
            "why": choice.why,
            "overrides": overrides,
            "run": os.path.relpath(chosen.run, folder),
            "step": chosen.step,
            "preferred": None if choice.preferred is None else _name(candidates[choice.preferred]),
            "scores": {name: number(values[choice.chosen]) for name, values in choice.scores.items()},
            "dev": {name: number(value) for name, value in vars(choice.weighting[choice.chosen]).items()},
            "collapsed": {_name(candidates[i]): why for i, why in choice.out.items()},
            "failed": failed,
        },
    )
    write_atomically(sweep.scores_file, _csv(candidates, choice))
    accuracies = oracle_accuracies(candidates)
    if accuracies is None:
        sweep.oracle_file.unlink(missing_ok=True)
        return
    judged = oracle_judgement(choice, accuracies)
    write_json(
        sweep.oracle_file,
        {
            "note": "made with target labels, which had no part in the choice",
            "best_accuracy": float(accuracies.max()),
            "accuracies": {_name(c): c.oracle_accuracy for c in candidates},
            "validators": {n: {key: number(value) for key, value in found.items()} for n, found in judged.items()},
        },
    )


def oracle_accuracies(candidates: Sequence[Candidate]) -> np.ndarray | None:
    """Target accuracies of all candidates; None unless all are known."""
    found = [c.oracle_accuracy for c in candidates]
    return None if None in found else np.array(found, dtype=float)


def _csv(candidates: Sequence[Candidate], choice: Choice) -> str:
    """One line a candidate: its settings, whether it is chosen or out, and the score and rank of every validator."""
    settings = varying(candidates)
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    scores = [*choice.scores]
    notes = [*vars(choice.weighting[0])]
    head = ["run", "step", *settings, "chosen", "collapsed", *scores, *(f"{name} rank" for name in scores)]
    out.writerow([*head, *(f"dev weights: {name}" for name in notes)])
    for i, c in enumerate(candidates):
        values = [choice.scores[name][i] for name in scores] + [choice.ranks[name][i] for name in scores]
        values += [getattr(choice.weighting[i], name) for name in notes]
        row = [c.run.name, c.step, *("" if (v := setting_of(c.config, n)) is None else v for n in settings)]
        row += ["yes" if i == choice.chosen else "", choice.out.get(i, ""), *map(_cell, values)]
        out.writerow(csv_cells(row))
    return text.getvalue()


def _cell(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def _name(candidate: Candidate) -> str:
    return f"{candidate.run.name}, step {candidate.step}"
