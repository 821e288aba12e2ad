"""The accuracy on rows without labels, from how sure a network is, and from how often networks agree.

Shapes: n_v held-out source rows, n_t target rows. Scores of rows are higher where a network is surer.
"""

from collections.abc import Sequence

import numpy as np

__all__ = [
    "agreement",
    "average_confidence",
    "average_thresholded_confidence",
    "confidence_score",
    "difference_of_confidences",
    "entropy_score",
]


def confidence_score(p: np.ndarray) -> np.ndarray:
    """max_c P_jc: (n, C) to (n,)."""
    found: np.ndarray = p.max(1)
    return found


def entropy_score(p: np.ndarray) -> np.ndarray:
    """Σ_c P_jc log P_jc, the negative entropy: (n, C) to (n,).

    >>> entropy_score(np.array([[1.0, 0.0], [0.5, 0.5]])).round(3).tolist()
    [0.0, -0.693]
    """
    found: np.ndarray = (p * np.log(np.maximum(p, 1e-300))).sum(1)
    return found


def average_thresholded_confidence(score_v: np.ndarray, right_v: np.ndarray, score_t: np.ndarray) -> float:
    """ATC: the share of target rows whose score is at least t (Garg et al., ICLR 2022).

    t is where as many right source rows score below it as wrong ones score at least t, so that the share of source rows
    at or above it is their accuracy.

    >>> score_v, right_v = np.array([0.2, 0.4, 0.6, 0.8]), np.array([False, True, True, True])
    >>> average_thresholded_confidence(score_v, right_v, np.array([0.3, 0.5, 0.7, 0.9]))  # t = 0.4
    0.75
    """
    if not len(score_v):
        return float("nan")
    order = np.argsort(score_v, kind="stable")
    score, right = score_v[order], right_v[order]
    # At t = score[k], the k rows before it are below. Right ones among them should be as many as wrong ones after.
    below = np.concatenate([[0], np.cumsum(right)])
    above = np.concatenate([np.cumsum(~right[::-1])[::-1], [0]])
    k = int(np.argmin(np.abs(below - above)))
    t = score[k] if k < len(score) else np.inf
    return float((score_t >= t).mean())


def difference_of_confidences(confidence_v: np.ndarray, right_v: np.ndarray, confidence_t: np.ndarray) -> float:
    """DoC: accuracy_v − (mean confidence_v − mean confidence_t), from 0 to 1 (Guillory et al., ICCV 2021).

    >>> difference_of_confidences(np.array([0.9, 0.9]), np.array([True, True]), np.array([0.8, 0.6])).__round__(6)
    0.8
    """
    if not len(confidence_v):
        return float("nan")
    return float(np.clip(right_v.mean() - confidence_v.mean() + confidence_t.mean(), 0, 1))


def average_confidence(p: np.ndarray) -> float:
    """Mean_j max_c P_jc: the accuracy of a network that is calibrated where it is asked."""
    return float(p.max(1).mean())


def agreement(guess: np.ndarray, others: Sequence[np.ndarray]) -> float:
    """The share of rows that another network predicts alike, averaged over the others (Jiang et al., ICLR 2022).

    Of two draws of one calibrated ensemble it is the accuracy; of networks that err alike it is too high.

    >>> agreement(np.array([0, 1, 2, 2]), [np.array([0, 1, 2, 0]), np.array([0, 0, 0, 2])])
    0.625
    """
    return float(np.mean([(guess == other).mean() for other in others])) if len(others) else float("nan")
