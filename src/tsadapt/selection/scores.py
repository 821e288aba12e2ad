"""Scores of what the network says of the target, each a few lines.

Shapes: P (n_t, C) probabilities of the target, P̂ (C,) their mean; H is the entropy, in nats.
"""

import math

import numpy as np
import torch

from tsadapt.selection.logits import blocks, guesses, log_softmax
from tsadapt.selection.predictions import Predictions
from tsadapt.selection.validators import validator

__all__ = ["bnm", "corr_c", "entropy", "im", "rankme", "snd", "source_accuracy", "transfer_score"]

TILE = 512
"""Rows and columns of n_t × n_t similarities that are in memory at a time."""

CLASSES = 1024
"""Rows of C × C tables that are in memory at a time."""

TEMPERATURE = 0.05
"""SND's."""


@validator(
    "source-accuracy", higher=True, span="0 … 1", needs_holdout=True,
    fails="knows nothing of the target: training longer on the source alone looks best",
)  # fmt: skip
def source_accuracy(p: Predictions) -> float:
    """Accuracy on the held-out source rows."""
    return float((guesses(p.logits_v) == p.labels_v).mean())


@validator("entropy", higher=True, span="−log C … 0", fails="favours collapse: one class for all, surely, scores best")
def entropy(p: Predictions) -> float:
    """Minus the mean entropy of the target's predictions, −mean_j H(P_j)."""
    return -_mean_entropy(p)


@validator("im", higher=True, span="0 … log C", fails="favours equal class shares and confidence, right or wrong")
def im(p: Predictions) -> float:
    """Mutual information of rows and predictions, H(P̂) − mean_j H(P_j)."""
    mean = sum(block.sum(0) for block in p.probability_blocks()) / len(p.logits_t)
    return float(-(mean * np.log(np.maximum(mean, 1e-300))).sum()) - _mean_entropy(p)


@validator("bnm", higher=True, span="1/√(nC) … √(C/n)", heavy=True, fails="as im: confident and even is not yet right")
def bnm(p: Predictions) -> float:
    """Batch nuclear norm ‖P‖_*/n, high for confident and diverse predictions (Cui et al., 2020)."""
    return float(np.linalg.svd(p.probabilities_t, compute_uv=False).sum()) / len(p.logits_t)


@validator(
    "snd", higher=True, span="0 … log(n − 1)", most_rows=20_000, heavy=True,
    fails="favours collapse: equal predictions score log(n − 1); compares all rows with all",
)  # fmt: skip
def snd(p: Predictions) -> float:
    """Soft neighbourhood density: mean entropy of the similarities of predictions (Saito et al., 2021)."""
    probabilities = torch.cat([torch.from_numpy(block).float() for block in p.probability_blocks()])
    rows = torch.nn.functional.normalize(probabilities, dim=1).div_(TEMPERATURE**0.5)
    n, top = len(rows), 1 / TEMPERATURE
    if n < 2:
        return float("nan")
    # For the similarities s_ij: z_i = Σ_j exp s_ij and a_i = Σ_j exp(s_ij) s_ij, tile by tile; s is symmetric.
    z, a = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    for i in range(0, n, TILE):
        for j in range(i, n, TILE):
            s = rows[i : i + TILE] @ rows[j : j + TILE].T
            e = (s - top).exp_()
            if i == j:
                e.fill_diagonal_(0)
            weighted = s.mul_(e)
            z[i : i + TILE] += e.sum(1)
            a[i : i + TILE] += weighted.sum(1)
            if i != j:
                z[j : j + TILE] += e.sum(0)
                a[j : j + TILE] += weighted.sum(0)
    return float((z.log() + top - a / z).mean())


@validator(
    "corr-c", higher=True, span="1 … √C", heavy=True, fails="as im: blind to predictions that are even but permuted"
)
def corr_c(p: Predictions) -> float:
    """Class correlation tr(PᵀP)/‖PᵀP‖_F: 1 if one class takes all, √C if all are even and sure (Tu et al., 2023)."""
    trace, squares = 0.0, 0.0
    for start in range(0, p.classes, CLASSES):  # of a large PᵀP some rows at a time
        mine = slice(start, start + CLASSES)
        gram = sum(block[:, mine].T @ block for block in p.probability_blocks())
        assert isinstance(gram, np.ndarray)
        trace, squares = trace + np.trace(gram, start), squares + np.vdot(gram, gram)
    return float(trace / np.sqrt(squares))


@validator("rankme", higher=True, span="1 … K", fails="says how rich the features are, not whether the classes match")
def rankme(p: Predictions) -> float:
    """Effective rank of the target's features, exp H(singular values) (Garrido et al., 2023)."""
    f = p.features_t.astype(np.float64)
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(f.T @ f), 0))
    if not values.sum() > 0:
        return 1.0
    share = values / values.sum()
    return float(np.exp(-(share * np.log(np.maximum(share, 1e-300))).sum()))


@validator(
    "transfer-score", higher=True, span="at most 2",
    fails="its parts have scales of their own; tight clusters of the wrong classes please it",
)  # fmt: skip
def transfer_score(p: Predictions) -> float:
    """Hopkins statistic of the features + im/log C − unevenness of the class weights (Yang et al., 2023)."""
    return hopkins(p.features_t) + im(p) / math.log(p.classes) - _unevenness(p)


def hopkins(features: np.ndarray, share: float = 0.05, most: int = 1000, seed: int = 0) -> float:
    """How clustered features are: 1/2 for points at random, towards 1 for tight clusters (Hopkins and Skellam, 1954).

    Compares distances to the nearest row from random points of the bounding box, and from a sample of the rows.
    """
    from sklearn.neighbors import NearestNeighbors

    f = features.astype(np.float32)
    count = min(max(round(share * len(f)), 2), most, len(f) - 1)
    if count < 1:
        return float("nan")
    rng = np.random.default_rng(seed)
    sample = f[rng.choice(len(f), count, replace=False)]
    anywhere = rng.uniform(f.min(0), f.max(0), (count, f.shape[1])).astype(np.float32)
    neighbours = NearestNeighbors(n_neighbors=2, algorithm="brute").fit(f)
    from_rows = float(neighbours.kneighbors(sample)[0][:, 1].sum())
    from_anywhere = float(neighbours.kneighbors(anywhere)[0][:, 0].sum())
    return from_anywhere / (from_anywhere + from_rows) if from_anywhere + from_rows > 0 else 0.5


def _unevenness(p: Predictions) -> float:
    """Mean squared deviation of the angles between class weights from those of a regular simplex, over the heads."""
    if p.weight is None:
        return float("nan")
    w = p.weight / np.maximum(np.linalg.norm(p.weight, axis=2, keepdims=True), 1e-12)
    even, total, count = np.arccos(-1 / (p.classes - 1)), 0.0, 0
    for start in range(0, p.classes, CLASSES):
        cosine = np.clip(w[:, start : start + CLASSES] @ w.transpose(0, 2, 1), -1, 1)
        pairs = np.triu_indices(cosine.shape[1], start + 1, p.classes)
        deviation = (np.arccos(cosine[:, pairs[0], pairs[1]]) - even) ** 2
        total, count = total + deviation.sum(), count + deviation.size
    return float(total / count)


def _mean_entropy(p: Predictions) -> float:
    negative = [(np.exp(log_p) * log_p).sum(1) for log_p in map(log_softmax, blocks(p.logits_t))]
    return float(-np.concatenate(negative).mean())
