"""What a validator is, and the registry of all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tsadapt.registry import Registry
from tsadapt.selection.logits import FactoredLogits
from tsadapt.selection.predictions import Predictions

__all__ = ["VALIDATORS", "Validator", "pool_validator", "ranks", "scores_of", "validator"]

Score = Callable[[Predictions], float]
PoolScore = Callable[[Sequence[Predictions]], Sequence[float]]


@dataclass(frozen=True)
class Validator:
    """A score of candidates without target labels.

    `higher` says whether more is better, `span` the range, `fails` when not to trust it; `alone` scores one candidate,
    and is None if only a whole pool can be scored. `needs_holdout`: it looks at the held-out part of the source.
    `slow`, with more target rows than `most_rows`, or `heavy` and with logits too many for a table: it is computed only
    when asked for.
    """

    name: str
    what: str
    higher: bool
    span: str
    fails: str
    together: PoolScore
    alone: Score | None = None
    needs_holdout: bool = False
    slow: bool = False
    most_rows: int | None = None
    heavy: bool = False

    def __call__(self, predictions: Predictions) -> float:
        """The score of one candidate."""
        if self.alone is None:
            raise ValueError(f"{self.name} compares the candidates of a pool, and cannot score one alone")
        return self.alone(predictions)

    def quick(self, pool: Sequence[Predictions]) -> bool:
        """Whether scoring the pool takes seconds, so that it is done unasked."""
        if self.slow or (self.heavy and any(isinstance(p.logits_t, FactoredLogits) for p in pool)):
            return False
        return self.most_rows is None or all(len(p.logits_t) <= self.most_rows for p in pool)

    def scores(self, pool: Sequence[Predictions]) -> np.ndarray:
        """One score a candidate; NaN where it cannot be had (no held-out rows, values that are not finite)."""
        fit = [i for i, p in enumerate(pool) if p.finite and (len(p.labels_v) or not self.needs_holdout)]
        found = np.full(len(pool), np.nan)
        if fit:
            found[fit] = [float(score) for score in self.together([pool[i] for i in fit])]
        return found

    def goodness(self, scores: np.ndarray) -> np.ndarray:
        """The scores with higher = better, NaN as the worst of all."""
        signed = scores if self.higher else -scores
        return np.where(np.isnan(signed), -np.inf, signed)


VALIDATORS: Registry[Validator] = Registry("validator")


def validator(
    name: str,
    *,
    higher: bool,
    span: str,
    fails: str,
    needs_holdout: bool = False,
    slow: bool = False,
    most_rows: int | None = None,
    heavy: bool = False,
) -> Callable[[Score], Validator]:
    """Register a function of one candidate's predictions."""

    def put(score: Score) -> Validator:
        def together(pool: Sequence[Predictions]) -> list[float]:
            return [score(p) for p in pool]

        what = (score.__doc__ or "").splitlines()[0]
        one = Validator(name, what, higher, span, fails, together, score, needs_holdout, slow, most_rows, heavy)
        return VALIDATORS.register(name)(one)

    return put


def pool_validator(name: str, *, higher: bool, span: str, fails: str) -> Callable[[PoolScore], Validator]:
    """Register a function that scores a whole pool at once."""

    def put(score: PoolScore) -> Validator:
        what = (score.__doc__ or "").splitlines()[0]
        return VALIDATORS.register(name)(Validator(name, what, higher, span, fails, score))

    return put


def scores_of(predictions: Predictions) -> dict[str, float | None]:
    """Every quick score that one candidate has by itself, by the validator's name; None where it cannot be had."""
    found: dict[str, float | None] = {}
    for name in VALIDATORS:
        one = VALIDATORS[name]
        if one.alone is not None and one.quick([predictions]):
            value = float(one.scores([predictions])[0])
            found[name] = value if np.isfinite(value) else None
    return found


def ranks(goodness: np.ndarray) -> np.ndarray:
    """Ranks from 1 (best); equal ones share the mean of theirs.

    >>> ranks(np.array([0.5, 0.9, 0.5])).tolist()
    [2.5, 1.0, 2.5]
    """
    from scipy.stats import rankdata

    found: np.ndarray = rankdata(-goodness)
    return found
