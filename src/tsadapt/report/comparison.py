"""How runs, or the candidates of one run or sweep, compare, and which is chosen without target labels."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tsadapt.errors import UserError
from tsadapt.report.page import Column, Comparison
from tsadapt.report.selection import candidate_names
from tsadapt.runs.folder import RunFolder, SweepFolder, read_json
from tsadapt.selection.predictions import Predictions
from tsadapt.selection.select import CONSENSUS, VOTERS, Choice, choose
from tsadapt.sweep.choice import (
    Candidate,
    preferred_among,
    read_candidates,
    reference_among,
    setting_of,
    unfolded,
    varying,
)

__all__ = ["MOST_SECTIONS", "compared", "named"]

IN_THE_NAME = ("source_term", "target_terms", "method", "candidates", "log_every")
"""Settings that the name of a run says, and some that say nothing of it."""

MOST_SETTINGS = 4
"""Settings that are compared."""

MOST_SECTIONS = 8
"""Runs that get a part of their own; further ones are in the comparison alone."""


def compared(
    paths: Sequence[Path],
    shown: Sequence[tuple[RunFolder, int]],
    tell: Callable[[str], object] = str,
    called: Mapping[Path, str] | None = None,
    estimates: Mapping[Path, float] | None = None,
) -> tuple[Comparison | None, int]:
    """How several runs compare at the steps shown, or all candidates of one run or sweep; None if there is only one.

    Beside it the place among `shown` of the chosen one. Runs of a result are `called` by their names there, and have
    `estimates` of their accuracy.
    """
    called, estimates = called or {}, estimates or {}
    runs = unfolded(paths, tell)
    places = {(run.path, step): i for i, (run, step) in enumerate(shown)}
    try:
        candidates = read_candidates([run.path for run in runs])
        if len(shown) > 1:
            candidates = [c for c in candidates if (c.run, c.step) in places]
    except UserError as error:  # of several tasks
        if len(runs) == 1:
            raise
        candidates = [_as_candidate(run) for run in runs]
        names = [
            f"{c.config.source} → {c.config.target}, {c.config.objective} ({called.get(c.run, c.run.name)})"
            for c in candidates
        ]
        return _table(candidates, names, None, places, estimates, (str(error),)), 0
    if len(candidates) == 1:
        return None, 0
    apart = len(shown) > 1  # runs, which have names, beside settings in which they differ
    names = [f"{c.run.name}, {c.config.objective}" for c in candidates] if apart else candidate_names(candidates)
    names = [
        named(called[c.run], c.config.objective) if c.run in called else name
        for c, name in zip(candidates, names, strict=True)
    ]
    recorded = [chosen for path in paths if (chosen := SweepFolder(path).chosen) is not None]
    by = read_json(SweepFolder(paths[0]).choice_file, ("by",))["by"] if len(paths) == 1 and recorded else CONSENSUS
    notes: tuple[str, ...] = ()
    choice: Choice | None = None
    try:
        preferred = preferred_among(candidates, paths[0]) if len(paths) == 1 else None
        pool = [candidate.predictions for candidate in candidates]
        choice = choose(pool, by, reference_among(candidates), preferred=preferred)
    except UserError as error:
        notes = (str(error),)
    table = _table(candidates, names, choice, places, estimates if apart else {}, notes, apart)
    place = None if table.chosen is None else table.links[table.chosen]
    return table, 0 if place is None or place >= MOST_SECTIONS else place


def named(name: str, objective: str) -> str:
    """A candidate's name, if it has one (after that of its result), and its objective where that says more.

    >>> named("strong", "ce + mi"), named("cdan+e", "ce + cdan+e"), named("r: mi", "ce + mi"), named("", "ce")
    ('strong (ce + mi)', 'cdan+e', 'r: mi', 'ce')
    """
    said = name.rpartition(": ")[2] in ("", objective, objective.removeprefix("ce + "))
    return name or objective if said else f"{name} ({objective})"


def _as_candidate(run: RunFolder) -> Candidate:
    last = run.metrics["last"]
    predictions = Predictions.read(run.predictions_file(last["step"]))
    return Candidate(run.path, last["step"], run.config, predictions, last["target"].get("accuracy"))


def _table(
    candidates: Sequence[Candidate],
    names: Sequence[str],
    choice: Choice | None,
    places: Mapping[tuple[Path, int], int],
    estimates: Mapping[Path, float],
    notes: tuple[str, ...],
    settings: bool = False,
) -> Comparison:
    columns = []
    for name in [name for name in varying(candidates) if name not in IN_THE_NAME][:MOST_SETTINGS] if settings else []:
        values = [setting_of(c.config, name) for c in candidates]
        columns.append(Column(name, tuple(v if isinstance(v, int | float | None) else str(v) for v in values)))
    if choice is not None:
        out = set(choice.out)

        def kept(values: np.ndarray) -> tuple[float | None, ...]:
            return tuple(None if i in out or np.isnan(v) else float(v) for i, v in enumerate(values))

        how = "by the mean rank over the validators beside it" if choice.by == CONSENSUS else f"by {choice.by}"
        columns.append(Column("rank", kept(choice.ranks[choice.by]), "low", f"{how}, without target labels"))
        asked = VOTERS if choice.by == CONSENSUS else (choice.by,)
        known = [name for name in asked if name in choice.scores and not np.isnan(choice.scores[name]).all()]
        text = "a validator's score, without target labels"
        columns += [Column(name, kept(choice.scores[name]), "", text) for name in known]
    estimated = tuple(estimates.get(c.run) for c in candidates)
    if any(value is not None for value in estimated):
        columns.append(Column("estimated accuracy", estimated, "", "without target labels", percent=True))
    confidence = tuple(float(c.predictions.confidence_t.mean()) for c in candidates)
    columns.append(Column("mean softmax", confidence, "", "says how sure, not how right", percent=True))
    source = tuple(_source_accuracy(c) for c in candidates)
    if any(value is not None for value in source):
        columns.append(Column("source accuracy", source, "high", "on the source's own rows", percent=True))
    oracle = tuple(c.oracle_accuracy for c in candidates)
    if any(value is not None for value in oracle):
        text = "oracle: target labels, which had no part in training or choice"
        columns.append(Column("measured accuracy", oracle, "high", text, percent=True))
    links = tuple(at if (at := places.get((c.run, c.step))) is None or at < MOST_SECTIONS else None for c in candidates)
    if choice is None:
        return Comparison(tuple(names), tuple(columns), links, notes=notes)
    return Comparison(tuple(names), tuple(columns), links, choice.chosen, choice.why, dict(choice.out), notes)


def _source_accuracy(candidate: Candidate) -> float | None:
    last = RunFolder(candidate.run).metrics["last"]
    found: float | None = last["source"].get("accuracy") if last["step"] == candidate.step else None
    return found
