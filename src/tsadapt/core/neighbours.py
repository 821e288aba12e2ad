"""The nearest rows of a memory, and what their predictions say of a sample.

Shapes: n rows of the memory, B samples of a batch, K features, k neighbours, C classes.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.checks import check_logits, check_matrix, check_prior, check_vector
from tsadapt.core.precision import computing_dtype, full_precision
from tsadapt.core.processes import Processes

__all__ = ["attraction_dispersion_loss", "balanced_predictions", "nearest_rows", "neighbour_labels"]

CHUNK = 1 << 14
"""Rows that are compared at once, so that a long memory is not copied whole."""


@torch.no_grad()
def nearest_rows(
    features: Tensor,
    rows: Tensor,
    k: int,
    own: Tensor | None = None,
    eligible: Tensor | None = None,
    processes: Processes | None = None,
) -> tuple[Tensor, Tensor]:
    """The k rows of largest cosine to each sample: their indices (B, k), and whether there is such a row (B, k).

    Shapes: `features` (B, K), `rows` (n, K), `own` (B,) the row that is the sample itself, which is no neighbour,
    `eligible` (n,) the rows that may be. Of fewer than k rows all are given. In float32 or wider.

    With `processes`, `rows` is the block of this one out of as many rows as `eligible` has; samples, indices and
    `eligible` are those of all.

    >>> import torch
    >>> rows = torch.tensor([[1.0, 0.0], [9.0, 1.0], [0.0, 1.0]])
    >>> place, found = nearest_rows(rows[:1], rows, k=2, own=torch.tensor([0]))
    >>> place.tolist(), found.tolist()
    ([[1, 2]], [[True, True]])
    """
    check_matrix("rows", rows, None, features.shape[-1], "rows by features")
    check_matrix("features", features, None, rows.shape[1], "samples by features")
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1.")
    if own is not None:
        check_vector("own", own, features.shape[0])
    if processes is not None and eligible is not None:
        block = processes.block(len(eligible))
        own, eligible = None if own is None else own - block.start, eligible[block]
    if eligible is not None and (tuple(eligible.shape) != rows.shape[:1] or eligible.dtype != torch.bool):
        raise ValueError(f"eligible is {tuple(eligible.shape)}, {eligible.dtype}, expected ({rows.shape[0]},) of bool.")
    with full_precision(rows):
        dtype = computing_dtype(features, rows)
        f = F.normalize(features.to(rows.device, dtype), dim=1)
        cosine, place = f.new_empty(f.shape[0], 0), torch.empty(f.shape[0], 0, dtype=torch.int64, device=f.device)
        for start in range(0, rows.shape[0], CHUNK):
            some = rows[start : start + CHUNK].to(dtype)
            part = torch.arange(start, start + some.shape[0], device=f.device)
            # Lengths are divided out of the products, not out of the rows, which would be copied for it.
            near = f @ some.T / torch.linalg.vector_norm(some, dim=1).clamp_min(1e-12)
            if eligible is not None:
                near.masked_fill_(~eligible[start : start + CHUNK].to(f.device), -torch.inf)
            if own is not None:
                near.masked_fill_(own.to(f.device)[:, None] == part, -torch.inf)
            cosine, place = torch.cat([cosine, near], 1), torch.cat([place, part.expand(f.shape[0], -1)], 1)
            cosine, best = cosine.topk(min(k, cosine.shape[1]), dim=1)
            place = place.gather(1, best)
        if processes is not None and eligible is not None:  # the nearest of the nearest
            missing = k - cosine.shape[1]
            cosine, place = F.pad(cosine, (0, missing), value=-torch.inf), F.pad(place + block.start, (0, missing))
            every = [processes.collect(found[None], [1] * processes.number) for found in (cosine, place)]
            cosine, place = (found.transpose(0, 1).flatten(1) for found in every)
            cosine, best = cosine.topk(k, dim=1)
            place = place.gather(1, best)
        return place, cosine > -torch.inf


def balanced_predictions(logits: Tensor, prior: Tensor | None = None) -> Tensor:
    """Q_jc = P_jc² / Σ_i P_ic²: predictions made sharper, and every class of the same weight in the batch (ATDOC).

    Shapes: `logits` and Q (B, C), a constant. A column sums to one, or to zero if the class has no probability; rows
    sum to anything. With class shares `prior` π (C,) a column sums to C·π_c. In float32 or wider.

    >>> import torch
    >>> balanced_predictions(torch.zeros(4, 2)).tolist()[0]
    [0.25, 0.25]
    """
    check_logits(logits)
    check_prior(prior, logits.shape[1])
    with full_precision(logits):
        square = F.softmax(logits.detach().to(computing_dtype(logits)), dim=1).square()
        q = square / square.sum(0).clamp_min(torch.finfo(square.dtype).tiny)
        return q if prior is None else q * (prior.to(q) * prior.numel())


def neighbour_labels(predictions: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
    """Pseudo-labels by neighbours (ATDOC-NA): argmax and max of v = the mean of their predictions.

    Shapes: `predictions` (B, k, C), `found` (B, k) says which neighbours exist, labels and weights (B,). Without any
    neighbour the weight is zero.

    >>> import torch
    >>> p = torch.tensor([[[0.25, 0.75], [0.5, 0.5]]])
    >>> label, weight = neighbour_labels(p, torch.tensor([[True, True]]))
    >>> label.item(), weight.item()
    (1, 0.625)
    """
    _check_neighbours(predictions, found)
    p = predictions.detach().to(computing_dtype(predictions))
    total = (p * found[:, :, None]).sum(1)
    weight, label = (total / found.sum(1, keepdim=True).clamp_min(1)).max(1)
    return label, weight


def attraction_dispersion_loss(
    logits: Tensor, predictions: Tensor, found: Tensor, alpha: float = 1.0, index: Tensor | None = None,
    prior: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Predictions like those of their neighbours, and unlike those of the rest of the batch (AaD; Yang et al., 2022).

        L = −(1/B) Σ_i Σ_{k ∈ NN(i)} P_i·P_k + α (1/B) Σ_i Σ_{j≠i} P_i·P_j,    P = softmax(logits)

    Shapes: `logits` (B, C), `predictions` of the neighbours (B, k, C), constants, `found` (B, k) says which of them
    exist, `index` (B,) tells a sample that is in the batch twice, which is not driven from itself. In float32 or wider.

    The second sum is least when all classes are equally frequent. With class shares `prior` π (C,), positive, the
    products there are Σ_c P_ic P_jc / (C·π_c), and it is least at these shares.

    >>> import torch
    >>> sure = torch.eye(2) * 1e4
    >>> near = torch.eye(2)[:, None].expand(2, 3, 2)
    >>> attraction_dispersion_loss(sure, near, torch.ones(2, 3, dtype=torch.bool)).item()
    -3.0
    """
    check_logits(logits)
    _check_neighbours(predictions, found)
    b, c = logits.shape
    if predictions.shape[0] != b or predictions.shape[2] != c:
        raise ValueError(f"predictions has shape {tuple(predictions.shape)}, expected ({b}, neighbours, {c}).")
    name = torch.arange(b) if index is None else index
    check_vector("index", name, b)
    check_prior(prior, c)
    with full_precision(logits):
        p = F.softmax(logits.to(computing_dtype(logits)), dim=1)
        near = (predictions.detach().to(p) * found.to(p.device)[:, :, None]).sum(1)
        others = (name[:, None] != name).to(p)
        scaled = p if prior is None else p / (prior.to(p) * c)
        return (alpha * (others * (scaled @ p.T)).sum() - (p * near).sum()) / b


def _check_neighbours(predictions: Tensor, found: Tensor) -> None:
    if predictions.ndim != 3 or found.shape != predictions.shape[:2] or found.dtype != torch.bool:
        raise ValueError(
            f"predictions has shape {tuple(predictions.shape)} and found {tuple(found.shape)}, expected"
            " (samples, neighbours, classes) and a bool for each sample and neighbour."
        )
