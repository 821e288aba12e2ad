"""The choice among a pool of candidates, without a target label; how good it was, once labels are there (oracle)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tsadapt.errors import UserError, unknown
from tsadapt.selection.guard import NOT_FINITE, collapsed
from tsadapt.selection.importance import Weighting, weighting
from tsadapt.selection.predictions import Predictions
from tsadapt.selection.validators import VALIDATORS, ranks

__all__ = [
    "CONSENSUS",
    "CONSENSUS_FAILS",
    "CONSENSUS_WHAT",
    "VOTERS",
    "Choice",
    "check_selector",
    "choose",
    "oracle_judgement",
    "selectors",
    "validator_lines",
]

CONSENSUS = "consensus"

VOTERS = ("dev", "corr-c", "class-ami", "mixval", "ensv")
"""Whose ranks the consensus averages: one for each idea (source risk, confidence, clusters, smoothness, the pool).

Not im: β times it is part of what is trained, so that a larger β pleases it whether or not it helps.
"""


CONSENSUS_WHAT = f"Mean rank by {', '.join(VOTERS)}; collapsed candidates are out, and source-only stays unless beaten."
CONSENSUS_FAILS = "where most of those are wrong together"


@dataclass(frozen=True)
class Choice:
    """The candidate that was chosen, by what, and why; all scores and ranks, by validator; who is excluded."""

    chosen: int
    by: str
    why: str
    scores: dict[str, np.ndarray]
    ranks: dict[str, np.ndarray]
    out: dict[int, str]
    weighting: tuple[Weighting, ...] = ()
    """For each candidate, what DEV's estimate rests on."""
    preferred: int | None = None
    """The candidate that only source-only could displace, if there was one."""


def selectors() -> list[str]:
    """Every name that `--by` takes."""
    return [CONSENSUS, *VALIDATORS]


def check_selector(by: str) -> None:
    """Refuse a name that `--by` does not take."""
    if by not in selectors():
        raise UserError(unknown("validator", by, selectors()))


def validator_lines() -> list[str]:
    """Every name that `--by` takes, with what it is, which way is better, its range, and when not to trust it."""
    lines = [f"{CONSENSUS}: {CONSENSUS_WHAT} Lower is better. Fails: {CONSENSUS_FAILS}."]
    for name in VALIDATORS:
        v = VALIDATORS[name]
        needs = " Needs --holdout." if v.needs_holdout else " Needs a pool." if v.alone is None else ""
        better = f"{'Higher' if v.higher else 'Lower'} is better, {v.span}."
        lines.append(f"{name}: {v.what} {better}{needs} Fails: {v.fails}.")
    return lines


def choose(
    pool: Sequence[Predictions], by: str = CONSENSUS, reference: int | None = None, *, guard: bool = True,
    preferred: int | None = None,
) -> Choice:  # fmt: skip
    """Choose the best candidate of a pool by a validator, or by the consensus of several.

    Collapsed candidates are excluded unless `guard` is off. `reference` is source-only's place in the pool: it
    is chosen when no other candidate beats it, by a better mean rank and by more votes for than against. `preferred` is
    chosen whatever the others' ranks, unless it is excluded or does not beat source-only.
    """
    if not pool:
        raise ValueError("a pool of no candidates")
    check_selector(by)
    out = collapsed(pool, reference) if guard else {i: NOT_FINITE for i, p in enumerate(pool) if not p.finite}
    racing = [i for i in range(len(pool)) if i not in out]
    if not racing:
        raise UserError(
            f"None of the {len(pool)} candidates can be chosen; the first {out[0]}. --no-guard keeps"
            " collapsed candidates."
        )
    names = VOTERS if by == CONSENSUS else (by,)
    unasked = [name for name in VALIDATORS if VALIDATORS[name].quick(pool)]
    scores, rank = _scored(pool, racing, [*dict.fromkeys([*names, *unasked])])
    votes = [name for name in names if not np.isnan(scores[name][racing]).any()]  # a missing score is no bad score
    if not votes:
        needs = VALIDATORS[names[0]].needs_holdout
        hint = " It needs held-out source rows in all of them: --holdout 0.1." if needs else ""
        raise UserError(f"Not all candidates can be scored by {by}.{hint}")
    mean = np.stack([rank[name] for name in votes]).mean(0)
    if by == CONSENSUS:
        scores[by], rank[by] = mean, np.full(len(pool), np.nan)
        rank[by][racing] = ranks(-mean[racing])
    able = racing
    if reference in racing:
        assert reference is not None
        able = [i for i in racing if mean[i] < mean[reference] and _wins(rank, votes, i, reference)]
    if preferred in able:
        assert preferred is not None
        best = preferred
        why = f"the best on average where labels are known, and better than source-only by {by}"
        why += f" ({', '.join(votes)})" if by == CONSENSUS else ""
    elif able:
        best = min(able, key=lambda i: (mean[i], i))
        why = f"best of {len(racing)} by {by}" + (f" ({', '.join(votes)})" if by == CONSENSUS else "")
    else:
        assert reference is not None
        best, why = reference, _why_source_only(by, racing, mean, rank, votes, reference)
    return Choice(best, by, why, scores, rank, out, tuple(_weighting(p) for p in pool), preferred)


def _sides(rank: dict[str, np.ndarray], votes: Sequence[str], i: int, reference: int) -> tuple[list[str], list[str]]:
    """Who prefers candidate i to the reference, and who the reference; those that see no difference abstain."""
    better = [name for name in votes if rank[name][i] < rank[name][reference]]
    return better, [name for name in votes if rank[name][i] > rank[name][reference]]


def _wins(rank: dict[str, np.ndarray], votes: Sequence[str], i: int, reference: int) -> bool:
    better, worse = _sides(rank, votes, i, reference)
    return len(better) > len(worse)


def _why_source_only(
    by: str, racing: list[int], mean: np.ndarray, rank: dict[str, np.ndarray], votes: Sequence[str], reference: int
) -> str:
    if len(racing) == 1:
        return "there is no other candidate in the race: source-only is kept"
    why = f"no candidate beats source-only by {by}: source-only is kept"
    best = min((i for i in racing if i != reference), key=lambda i: mean[i])
    if mean[best] < mean[reference]:
        better, worse = _sides(rank, votes, best, reference)
        why += (
            f"; the best of the others has the better mean rank, but {', '.join(better) or 'nobody'} speak for it and"
            f" {', '.join(worse)} against"
        )
    return why


def _weighting(p: Predictions) -> Weighting:
    return weighting(p.importance if p.finite else p.labels_v[:0])


def _scored(
    pool: Sequence[Predictions], racing: list[int], names: Sequence[str]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Scores and ranks of those in the race, by validator; NaN for the others."""
    scores, rank = {}, {}
    for name in names:
        found, place = np.full(len(pool), np.nan), np.full(len(pool), np.nan)
        found[racing] = VALIDATORS[name].scores([pool[i] for i in racing])
        place[racing] = ranks(VALIDATORS[name].goodness(found[racing]))
        scores[name], rank[name] = found, place
    return scores, rank


def oracle_judgement(choice: Choice, accuracies: np.ndarray) -> dict[str, dict[str, float]]:
    """How each validator's own choice does by the target's labels: regret to the best candidate, rank correlation.

    Nothing here has a part in any choice.
    """
    from scipy.stats import spearmanr

    found = {}
    for name, rank in choice.ranks.items():
        there = np.flatnonzero(~np.isnan(rank))
        if not len(there) or np.isnan(choice.scores[name]).all():
            continue
        mine = choice.chosen if name == choice.by else int(there[np.argmin(rank[there])])
        varied = len(np.unique(rank[there])) > 1 and len(np.unique(accuracies[there])) > 1
        correlation = float(spearmanr(-rank[there], accuracies[there]).statistic) if varied else float("nan")
        found[name] = {
            "accuracy": float(accuracies[mine]),
            "regret": float(np.nanmax(accuracies) - accuracies[mine]),
            "rank_correlation": correlation,
        }
    return found
