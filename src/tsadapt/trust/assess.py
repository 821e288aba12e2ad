"""How far to trust an adapted network, from what a portfolio of networks saved: accuracy, rows, class shares.

No target label has a part in it. `python -m paper trust` measures how good it is on tasks with labels (docs/trust.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tsadapt.errors import counted
from tsadapt.selection.logits import blocks, softmax
from tsadapt.selection.predictions import Predictions
from tsadapt.trust.accuracy import (
    agreement,
    average_confidence,
    average_thresholded_confidence,
    confidence_score,
    difference_of_confidences,
    entropy_score,
)
from tsadapt.trust.calibration import fit_temperature
from tsadapt.trust.evidence import evidence, linear_head
from tsadapt.trust.interval import Interval
from tsadapt.trust.rows import (
    DOUBTFUL,
    doubtful_rows,
    neighbour_support,
    probability_right,
    second_classes,
    support,
)
from tsadapt.trust.shares import bbse_shares, em_shares, label_shares, share_intervals, share_notes

__all__ = ["WORTH", "Trust", "assess", "explain_doubtful"]

WIDTH = 1.0
"""Half the width of the interval of the accuracy in log odds, from the errors on PACS and the embedded digits."""

TASKS, OFF, WORST = 18, 4.1, 12.5
"""On how many tasks of Office-31 and Office-Caltech-10, which took no part in setting constants, the estimate was
measured, and by how many points it was wrong on average and at worst (`python -m paper trust`)."""

WORTH = (
    f"Made without labels: on {TASKS} other tasks, where labels are known, such estimates were {OFF:g} points off on"
    f" average and {WORST:g} at worst."
)
"""How good the estimate is, for a reader."""

SHARE_WIDTH = 1.25
"""How much of the members' largest difference, and of rows that are probably wrong, the interval of a class share takes
in; from PACS and the embedded digits."""

LEAST_HELD = 20
"""With fewer held-out source rows, temperatures and class shares are hardly more than guesses."""


@dataclass(frozen=True)
class Trust:
    """What can be said of an adapted network's predictions without labels of the target.

    `estimate` is its accuracy with a 90 % interval; `parts` are estimates that others have proposed, by name, whose
    spread says how hard the case is. For each target row: `guess` and `second` class, the `probability` that the guess
    is right, and whether it is `doubtful`. `class_shares` of the target and `source_shares` go by the class's name;
    `notes` are sentences for a reader. `temperature` divides the network's own logits, so that its probabilities fit
    the held-out source rows, each counted by how target-like it is.
    """

    estimate: Interval
    parts: dict[str, float]
    guess: np.ndarray
    second: np.ndarray
    probability: np.ndarray
    doubtful: np.ndarray
    class_shares: dict[str, Interval]
    source_shares: dict[str, float]
    notes: tuple[str, ...]
    temperature: float


def assess(
    pool: Sequence[Predictions],
    chosen: int,
    classes: Sequence[str],
    *,
    again: Sequence[Predictions] = (),
    reference: int | None = None,
    source_shares: np.ndarray | None = None,
) -> Trust:
    """What to expect of candidate `chosen` of a pool: other methods on the same task, and `again`, its other seeds.

    Members predict the same target rows in the same order. `reference` is source-only's place in the pool: the class
    shares come from it, and ATC and DoC are read from it, for they fail after adaptation that makes networks confident.
    `source_shares` (C,) are those of the source's labels, by default of the held-out rows.

    >>> rng = np.random.default_rng(0)
    >>> y_v, y_t = np.arange(90) % 3, np.arange(300) % 3
    >>> def member(noise):
    ...     f_v, f_t = (4 * np.eye(3)[y] + noise * rng.normal(size=(len(y), 3)) for y in (y_v, y_t))
    ...     return Predictions(f_v, f_v, f_v, y_v, f_t, f_t)
    >>> trust = assess([member(1.5), member(2.0), member(2.0)], 0, ["ant", "bee", "cow"], reference=2)
    >>> 0 < trust.estimate.low < trust.estimate.value < trust.estimate.high < 1
    True
    >>> round(sum(share.value for share in trust.class_shares.values()), 6)
    1.0
    """
    _check(pool, chosen, again, len(classes))
    judged, count = pool[chosen], len(classes)
    guess = judged.guess_t
    others = [p for i, p in enumerate(pool) if i != chosen and p.finite]
    others += [p for p in again if p.finite]
    temperatures = [_temperature(p) for p in (judged, *others)]
    mean_p, own, theirs = _probabilities((judged, *others), temperatures, guess)
    near = [neighbour_support(p.features_t, guess) for p in others]
    s = support(own, theirs, near)
    probability = probability_right(s, count)
    value = float(probability.mean())
    sure = judged if reference is None else pool[reference]
    held = label_shares(judged.labels_v, count) if source_shares is None else source_shares
    shares, present = _class_shares(None if reference is None else sure, judged, others, held, probability)
    notes = _notes(judged, others, share_notes(shares, held, classes, present))
    return Trust(
        estimate=_interval(value, len(guess)),
        parts=_parts(sure, judged, [p for i, p in enumerate(pool) if i != chosen and p.finite], again),
        guess=guess,
        second=second_classes(mean_p, guess),
        probability=probability,
        doubtful=doubtful_rows(probability),
        class_shares=dict(zip(classes, shares, strict=True)),
        source_shares={name: float(share) for name, share in zip(classes, held, strict=True)},
        notes=tuple(notes),
        temperature=temperatures[0],
    )


def explain_doubtful(trust: Trust, threshold: float = DOUBTFUL) -> str:
    """What "doubtful" means, how many rows are, and how many of these to expect wrong, in one sentence or two."""
    rows = doubtful_rows(trust.probability, threshold)
    text = (
        f"A prediction is doubtful if its probability of being right is below {threshold:.0%}: the networks of the"
        " portfolio give its class little probability, or rows that look like it are predicted otherwise."
    )
    if not rows.any():
        return f"{text} No row is."
    wrong, elsewhere = (1 - trust.probability[mask] for mask in (rows, ~rows))
    found = f"{text} {int(rows.sum()):,} of {len(rows):,} rows are; about {wrong.mean():.0%} of these are wrong"
    return f"{found}, and {elsewhere.mean():.0%} of the others." if (~rows).any() else f"{found}."


def _check(pool: Sequence[Predictions], chosen: int, again: Sequence[Predictions], classes: int) -> None:
    if not 0 <= chosen < len(pool):
        raise ValueError(f"chosen is {chosen}, expected a place in a pool of {len(pool)}")
    shape = pool[chosen].logits_t.shape
    if shape[1] != classes:
        raise ValueError(f"the chosen candidate has logits of {shape[1]} classes, but {classes} classes are named")
    for p in (*pool, *again):
        if p.logits_t.shape != shape:
            raise ValueError(f"a member has target logits of shape {p.logits_t.shape}, the chosen one {shape}")
    if not pool[chosen].finite:
        raise ValueError("the chosen candidate has values that are not finite")


def _temperature(p: Predictions) -> float:
    """Fitted on the held-out source rows, each by how target-like it is; 1 without any."""
    if not len(p.labels_v):
        return 1.0
    return fit_temperature(np.asarray(p.logits_v), p.labels_v, p.importance)


def _probabilities(
    members: Sequence[Predictions], temperatures: Sequence[float], guess: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """The members' mean probabilities (n, C), and of the class `guess` the first one's and those of the others."""
    mean = np.zeros(members[0].logits_t.shape)
    of_guess = []
    for member, t in zip(members, temperatures, strict=True):
        p = np.concatenate([softmax(block / t) for block in blocks(member.logits_t)])
        mean += p / len(members)
        of_guess.append(p[np.arange(len(guess)), guess])
    return mean, of_guess[0], of_guess[1:]


def _interval(value: float, rows: int) -> Interval:
    """The estimate, give or take the errors of the design tasks, and what as many rows do by chance (90 %)."""
    inside = float(np.clip(value, 1e-3, 1 - 1e-3))
    odds = np.log(inside / (1 - inside))
    chance = 1.645 / np.sqrt(max(rows, 1) * inside * (1 - inside))  # the standard error in log odds
    half = np.hypot(WIDTH, chance)
    low, high = (float(1 / (1 + np.exp(-(odds + sign * half)))) for sign in (-1, 1))
    return Interval(value, min(low, value), max(high, value))


def _parts(
    sure: Predictions, judged: Predictions, others: Sequence[Predictions], again: Sequence[Predictions]
) -> dict[str, float]:
    """Estimates by single methods: of source-only (or whatever stands for it) and of the judged network."""
    found: dict[str, float] = {}
    for whose, p in (("source-only", sure), ("chosen", judged)):
        if whose == "chosen" and p is sure:
            continue
        t = fit_temperature(np.asarray(p.logits_v), p.labels_v)
        p_t = np.concatenate([softmax(block / t) for block in blocks(p.logits_t)])
        found[f"average confidence of {whose}"] = average_confidence(p_t)
        if not len(p.labels_v):
            continue
        p_v = softmax(np.asarray(p.logits_v) / t)
        right = p_v.argmax(1) == p.labels_v
        for name, score in (("confidence", confidence_score), ("entropy", entropy_score)):
            value = average_thresholded_confidence(score(p_v), right, score(p_t))
            found[f"ATC by {name} of {whose}"] = value
        found[f"DoC of {whose}"] = difference_of_confidences(p_v.max(1), right, p_t.max(1))
    for name, members in (("other methods", others), ("other seeds", again)):
        if len(members):
            found[f"agreement with {name}"] = agreement(judged.guess_t, [p.guess_t for p in members])
    return found


def _class_shares(
    sure: Predictions | None,
    judged: Predictions,
    others: Sequence[Predictions],
    source: np.ndarray,
    probability: np.ndarray,
) -> tuple[tuple[Interval, ...], np.ndarray]:
    """The judged network's predicted shares among the classes that are there, or, where the target is uneven, others.

    A network that adapted to even classes predicts even ones; `evidence` says which of them source-only's features do
    not support, and how far to take the shares that explain the target instead. The interval takes in rows that are
    probably wrong and what the members predict, and where λ > 0 also what source-only predicts, and BBSE. Also whether
    each class is there.
    """
    classes, n = len(source), len(judged.guess_t)
    predicted = label_shares(judged.guess_t, classes)
    said = [label_shares(p.guess_t, classes) for p in others if p is not sure]
    value, drawn, present = predicted, 0.0 * predicted, np.ones(classes, dtype=bool)
    if sure is not None and len(sure.labels_v) >= 2 and len(sure.features_s):
        em = em_shares(np.asarray(sure.logits_v), sure.labels_v, np.asarray(sure.logits_t), source)
        head = linear_head(sure.features_t, np.asarray(sure.logits_t))
        says = evidence(sure.features_s, head(sure.features_s).argmax(1), sure.features_t, head, em)
        value, present = says.combined(_predicted_among(judged, says.present)), says.present
        if says.uneven:
            found = _source_only_shares(sure, source)
            said += [label_shares(sure.guess_t, classes), *(np.array([one.value for one in by]) for by in found)]
            widths = [max(one.high - one.low for one in ones) / 2 for ones in zip(*found, strict=True)]
            drawn = says.uneven * np.array(widths)
    spread = np.max([np.abs(shares - value) for shares in (predicted, *said)], axis=0)
    wrong = np.bincount(judged.guess_t, 1 - probability, minlength=classes) / max(n, 1)
    wrong = np.maximum(wrong, wrong.sum() / classes)  # a class may also have rows that are predicted as others
    chance = 1.645**2 * value * (1 - value) / max(n, 1)
    half = np.sqrt(chance + drawn**2 + SHARE_WIDTH**2 * (spread**2 + wrong**2))
    low, high = np.clip(value - half, 0, 1), np.clip(value + half, 0, 1)
    return tuple(Interval(*map(float, one)) for one in zip(value, low, high, strict=True)), present


def _predicted_among(p: Predictions, present: np.ndarray) -> np.ndarray:
    """The shares (C,) of predictions among the classes that are there."""
    barred = np.where(present, 0.0, -np.inf)
    return label_shares(np.concatenate([(block + barred).argmax(1) for block in blocks(p.logits_t)]), len(present))


def _source_only_shares(p: Predictions, source: np.ndarray) -> tuple[tuple[Interval, ...], ...]:
    """By EM and by BBSE, with bootstrap intervals."""
    z_v, y_v, z_t, guess_t = np.asarray(p.logits_v), p.labels_v, np.asarray(p.logits_t), p.guess_t
    guess_v, classes = z_v.argmax(1), len(source)
    return (
        share_intervals(lambda v, t: em_shares(z_v[v], y_v[v], z_t[t], source), len(y_v), len(guess_t)),
        share_intervals(lambda v, t: bbse_shares(guess_v[v], y_v[v], guess_t[t], classes), len(y_v), len(guess_t)),
    )


def _notes(judged: Predictions, others: Sequence[Predictions], uneven: Sequence[str]) -> list[str]:
    notes = [*uneven]
    if notes:
        notes.append("If that is so, train with --class-prior estimated, or with shares that you know.")
    if not others:
        notes.append("There is no other network to compare with: the estimate rests on one network's confidence.")
    if (held_out := len(judged.labels_v)) < LEAST_HELD:
        how_many = f"Only {counted(held_out, 'source row')} could be" if held_out else "No source row was"
        notes.append(
            f"{how_many} held out of training, too few to check the probabilities with: more labelled source rows, or a"
            " larger --holdout, make them and the estimate safer."
        )
    return notes
