"""Candidates that collapsed, recognised without labels: too few classes, or nothing left of what source-only knew."""

from collections.abc import Sequence

import numpy as np

from tsadapt.selection.predictions import Predictions

__all__ = ["agreement_beyond_chance", "collapsed", "effective_classes"]

LEAST_DIVERSITY = 0.5
"""Of the classes that source-only predicts (beyond the first), the least part that a sound candidate predicts too."""

LEAST_AGREEMENT = 0.1
"""The least agreement with source-only on its surest rows, beyond what chance would give (Cohen's κ)."""

NOT_FINITE = "has values that are not finite"

SURE = 0.25
"""Source-only's surest rows: this share of them."""


def effective_classes(guess: np.ndarray, classes: int) -> float:
    """Exp H of the shares of predicted classes: C when all are equally frequent, 1 when one takes all.

    >>> effective_classes(np.array([0, 0, 0]), 10)
    1.0
    """
    share = np.bincount(guess, minlength=classes) / max(len(guess), 1)
    return float(np.exp(-(share * np.log(np.maximum(share, 1e-300))).sum()))


def agreement_beyond_chance(a: np.ndarray, b: np.ndarray, classes: int) -> float:
    """Cohen's κ: 1 for equal labels, 0 for what labels of these frequencies would share by chance.

    >>> agreement_beyond_chance(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]), 2)
    0.0
    """
    together = float((a == b).mean())
    shares = [np.bincount(labels, minlength=classes) / len(labels) for labels in (a, b)]
    chance = float(shares[0] @ shares[1])
    return (together - chance) / (1 - chance) if chance < 1 else 0.0


def collapsed(pool: Sequence[Predictions], reference: int | None = None) -> dict[int, str]:
    """The candidates that must not win, and why.

    `reference` is source-only's place in the pool: the others are held against it, and it is out only if broken itself.
    """
    found: dict[int, str] = {}
    if reference is not None and not pool[reference].finite:
        return {reference: NOT_FINITE, **collapsed([*pool], None)}
    rows = np.array([len(p.logits_t) for p in pool])
    expected = rows[reference] if reference is not None else int(np.median(rows))
    sure = None if reference is None else _surest(pool[reference])
    for i, p in enumerate(pool):
        if i == reference:
            continue
        if not p.finite:
            found[i] = NOT_FINITE
        elif len(p.logits_t) != expected:
            found[i] = f"predicts {len(p.logits_t)} target rows, the others {expected}"
        else:
            why = _lost_classes(p, None if reference is None else pool[reference])
            if not why and sure is not None and reference is not None:
                why = _lost_agreement(p.guess_t[sure], pool[reference].guess_t[sure], p.classes)
            if why:
                found[i] = why
    return found


def _lost_classes(p: Predictions, reference: Predictions | None) -> str:
    usual = p.classes if reference is None else effective_classes(reference.guess_t, p.classes)
    if len(p.labels_v):
        usual = min(usual, effective_classes(p.labels_v, p.classes))
    kept = effective_classes(p.guess_t, p.classes)
    if kept - 1 < LEAST_DIVERSITY * (usual - 1) or (kept == 1 and usual > 1):
        return f"predicts {kept:.1f} classes in effect, expected about {usual:.1f}"
    return ""


def _lost_agreement(guess: np.ndarray, reference: np.ndarray, classes: int) -> str:
    kappa = agreement_beyond_chance(guess, reference, classes)
    if kappa < LEAST_AGREEMENT and effective_classes(reference, classes) > 1:
        return f"agrees with source-only no more than by chance where that is sure (κ = {kappa:.2f})"
    return ""


def _surest(p: Predictions) -> np.ndarray:
    """The rows of which source-only is surest, the same share of each class that it predicts."""
    sure, guess = p.confidence_t, p.guess_t
    rows = []
    for c in np.unique(guess):
        mine = np.flatnonzero(guess == c)
        rows.append(mine[np.argsort(-sure[mine], kind="stable")][: max(round(SURE * len(mine)), 1)])
    return np.sort(np.concatenate(rows))
