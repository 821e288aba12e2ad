"""How often each class occurs in the target, from a network that saw labels of the source alone.

Both ways, EM and BBSE, assume that the rows of a class look alike in both domains. Where they do not, shares are a
guess, and the interval, which is that of drawing other rows, is too narrow.

Shapes: n_v held-out source rows, n_t target rows, C classes; shares π (C,), which sum to one.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from tsadapt.core import class_shares_by_em
from tsadapt.errors import few
from tsadapt.selection.logits import log_softmax
from tsadapt.trust.calibration import bias_corrected_temperature
from tsadapt.trust.interval import Interval, interval_of

__all__ = ["bbse_shares", "em_shares", "label_shares", "share_intervals", "share_notes"]

DRAWS = 100
"""Bootstrap draws."""

MOST_ROWS = 3000
"""Target rows of a draw: of more, a draw takes some."""

ABSENT = 0.01
"""A class is nearly absent below this share, or below a tenth of an even one."""

DOMINANT = 0.5
"""A class dominates above this share, if that is twice its share of the source, or half of what is left to all."""


def label_shares(labels: np.ndarray, classes: int) -> np.ndarray:
    """The share of each class (C,) among labels.

    >>> label_shares(np.array([0, 0, 2, 0]), 3).tolist()
    [0.75, 0.0, 0.25]
    """
    share: np.ndarray = np.bincount(labels, minlength=classes) / max(len(labels), 1)
    return share


def em_shares(
    logits_v: np.ndarray, labels_v: np.ndarray, logits_t: np.ndarray, source: np.ndarray | None = None
) -> np.ndarray:
    """Shares π of the target (C,) by EM on probabilities of bias-corrected temperature (Alexandari et al., 2020).

    `logits_v` (n_v, C) and `labels_v` (n_v,) of held-out source rows make the target's `logits_t` (n_t, C)
    probabilities, and `source` (C,) are the shares that these assume: of the held-out rows unless given. The shares of
    the largest likelihood (MLLS) are those that EM finds.

    >>> rng = np.random.default_rng(0)
    >>> y_v, y_t = rng.integers(0, 2, 4000), (rng.random(4000) < 0.9).astype(int)
    >>> z_v, z_t = (3 * np.eye(2)[y] + rng.normal(size=(4000, 2)) for y in (y_v, y_t))
    >>> em_shares(z_v, y_v, z_t).round(1).tolist()
    [0.1, 0.9]
    """
    t, b = bias_corrected_temperature(logits_v, labels_v)
    prior = label_shares(labels_v, logits_t.shape[1]) if source is None else source
    if not prior.sum() > 0:
        prior = np.full(logits_t.shape[1], 1 / logits_t.shape[1])
    p = np.exp(log_softmax(logits_t / t + b))
    found: np.ndarray = class_shares_by_em(torch.from_numpy(p), torch.from_numpy(prior)).numpy()
    return found


def bbse_shares(guess_v: np.ndarray, labels_v: np.ndarray, guess_t: np.ndarray, classes: int) -> np.ndarray:
    """Shares π of the target (C,) by black-box shift estimation (Lipton et al., ICML 2018).

        min_π ‖K π − q‖²  over shares π,    K_ij = P(predicted i | class j) on the source,    q_i = P(predicted i)

    Predictions (`guess`) and labels are class numbers. A class that no held-out row has gets its diagonal: it is taken
    as predicted right.

    >>> y = np.array([0] * 50 + [1] * 50)
    >>> guess = np.where(np.arange(100) % 5 == 0, 1 - y, y)  # wrong once in five
    >>> bbse_shares(guess, y, np.array([0] * 65 + [1] * 35), 2).round(2).tolist()  # 0.8 π + 0.2 (1 − π) = 0.65
    [0.75, 0.25]
    """
    from scipy.optimize import nnls

    counts = np.zeros((classes, classes))
    np.add.at(counts, (guess_v, labels_v), 1.0)
    missing = counts.sum(0) == 0
    counts[missing, missing] = 1.0
    k, q = counts / counts.sum(0), label_shares(guess_t, classes)
    # Σ_c π_c = 1 as one more equation of great weight: least squares over the simplex.
    a, b = np.vstack([k, np.full((1, classes), HEAVY)]), np.append(q, HEAVY)
    share: np.ndarray = nnls(a, b)[0]
    share /= share.sum()
    return share


HEAVY = 1e4


def share_intervals(
    estimate: Callable[[np.ndarray, np.ndarray], np.ndarray],
    rows_v: int,
    rows_t: int,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[Interval, ...]:
    """A share of each class with its bootstrap interval (90 %).

    `estimate` gives shares (C,) from the numbers of held-out rows and of target rows, which are drawn with replacement.

    >>> guess = np.array([0] * 75 + [1] * 25)
    >>> found = share_intervals(lambda v, t: label_shares(guess[t], 2), 0, 100)
    >>> found[0].value, round(found[0].low, 2), round(found[0].high, 2)
    (0.75, 0.67, 0.82)
    """
    value, rng = estimate(np.arange(rows_v), np.arange(rows_t)), np.random.default_rng(seed)
    drawn = []
    for _ in range(draws):
        v, t = rng.integers(0, max(rows_v, 1), rows_v), rng.integers(0, max(rows_t, 1), min(rows_t, MOST_ROWS))
        drawn.append(estimate(v, t))
    return tuple(interval_of(share, column) for share, column in zip(value, np.stack(drawn).T, strict=True))


def share_notes(
    shares: Sequence[Interval], source: np.ndarray, classes: Sequence[str], present: np.ndarray | None = None
) -> list[str]:
    """What is uneven about the target's classes, in sentences: those that it seems to lack, and one that dominates.

    A class with hardly any share is missing if its interval is small too, or if it is known not to be `present` (C,).

    >>> shares = [Interval(0.85, 0.8, 0.9), Interval(0.15, 0.1, 0.2), Interval(0.0, 0.0, 0.004)]
    >>> for note in share_notes(shares, np.full(3, 1 / 3), ["cat", "dog", "fox"]):
    ...     print(note)
    The target seems to have hardly any rows of fox.
    85% of the target seem to be cat, and 33% of the source.
    """
    little = min(ABSENT, 0.1 / len(classes))
    there = np.ones(len(classes), dtype=bool) if present is None else present
    missing = [
        name
        for name, share, s, here in zip(classes, shares, source, there, strict=True)
        if s > 0 and share.value < little and (share.high < 0.5 / len(classes) or not here)
    ]
    notes = [f"The target seems to have hardly any rows of {few(missing)}."] if missing else []
    most = int(np.argmax([share.value for share in shares]))
    value, before = shares[most].value, float(source[most])
    if value > DOMINANT and value > min(2 * before, (1 + before) / 2):
        notes.append(f"{value:.0%} of the target seem to be {classes[most]}, and {before:.0%} of the source.")
    return notes
