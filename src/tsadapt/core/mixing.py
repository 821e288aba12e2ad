"""Mixtures of two rows of one domain, and what a classifier should say of them (mixup; Zhang et al., 2018).

    x̃_i = λ x_i + (1 − λ) x_j,   j = π(i),   λ ~ Beta(α, α)

Shapes: B samples, C classes; inputs of any shape (B, …); the partners π (B,) are rows of the same batch.
"""

import random

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.checks import check_classes, check_logits, check_matrix, check_vector
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = ["mixed_label_loss", "mixed_prediction_distance", "mixed_rows", "mixing_share"]


def mixing_share(alpha: float, generator: torch.Generator) -> float:
    """λ ~ Beta(α, α): near 0 or 1 for a small α, uniform for 1, near ½ for a large one.

    >>> import torch
    >>> 0 <= mixing_share(0.2, torch.Generator().manual_seed(0)) <= 1
    True
    """
    if not alpha > 0:
        raise ValueError(f"alpha is {alpha}, expected more than zero.")
    # torch's own Beta draws from the global generator.
    seed = int(torch.randint(2**62, (), generator=generator))
    return random.Random(seed).betavariate(alpha, alpha)


def mixed_rows(x: Tensor, partner: Tensor, share: float) -> Tensor:
    """x̃_i = λ x_i + (1 − λ) x_π(i).

    Shapes: `x` (B, …), `partner` π (B,), `share` λ. In float32 or wider, whatever the dtype of x: pixels are bytes.

    >>> import torch
    >>> pixels = torch.tensor([[0, 255], [200, 0]], dtype=torch.uint8)
    >>> mixed_rows(pixels, torch.tensor([1, 0]), 0.75).tolist()
    [[50.0, 191.25], [150.0, 63.75]]
    """
    _check_pairs(len(x), partner, share)
    x = x.to(computing_dtype(x)) if x.is_floating_point() else x.float()
    return share * x + (1 - share) * x[partner]


def mixed_label_loss(logits: Tensor, labels: Tensor, partner: Tensor, share: float) -> Tensor:
    """The cross-entropy of mixtures with both of their labels, each by its share.

        L = (1/B) Σ_i λ (−log p̃_i[y_i]) + (1 − λ) (−log p̃_i[y_π(i)]),   p̃ = softmax(logits)

    Shapes: `logits` of the mixtures (B, C), `labels` y (B,) of the rows they are made of, `partner` π (B,), `share` λ.
    In float32 or wider.

    >>> import torch
    >>> logits = torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log()
    >>> y, partner = torch.tensor([0, 1]), torch.tensor([1, 0])
    >>> round(mixed_label_loss(logits, y, partner, 1.0).item(), 4)  # (log 2 + log 4/3)/2
    0.4904
    """
    check_logits(logits)
    check_vector("labels", labels, len(logits))
    check_classes("labels", labels, logits.shape[1])
    _check_pairs(len(logits), partner, share)
    with full_precision(logits):
        log_p = F.log_softmax(logits.to(computing_dtype(logits)), dim=1)
        y = labels.long()
        return share * F.nll_loss(log_p, y) + (1 - share) * F.nll_loss(log_p, y[partner])


def mixed_prediction_distance(mixed: Tensor, logits: Tensor, partner: Tensor, share: float) -> Tensor:
    """How far predictions of mixtures are from what the logits of their rows, mixed alike, predict.

        (1/BC) Σ_ic |softmax(z̃_i) − softmax(λ z_i + (1 − λ) z_π(i))|_c

    Logits are mixed, not probabilities: between two certain rows the logits say which one prevails. The gradient
    reaches both predictions. It lies between 0 and 2/C.

    Shapes: logits z̃ of the mixtures (`mixed`) and z of the rows (`logits`) (B, C), `partner` π (B,), `share` λ. In
    float32 or wider.

    >>> import torch
    >>> sure = 20 * torch.eye(2)
    >>> partner = torch.tensor([1, 0])
    >>> round(mixed_prediction_distance(torch.zeros(2, 2), sure, partner, 0.5).item(), 4)
    0.0
    >>> round(mixed_prediction_distance(torch.zeros(2, 2), sure, partner, 0.9).item(), 4)  # sure of the larger part
    0.5
    """
    check_logits(logits)
    check_matrix("mixed", mixed, len(logits), logits.shape[1], "that of logits")
    _check_pairs(len(logits), partner, share)
    with full_precision(logits):
        dtype = computing_dtype(mixed, logits)
        expected = mixed_rows(logits.to(dtype), partner, share).softmax(1)
        return (mixed.to(dtype).softmax(1) - expected).abs().mean()


def _check_pairs(rows: int, partner: Tensor, share: float) -> None:
    check_vector("partner", partner, rows)
    check_classes("partner", partner, rows, "rows")
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}, expected a share from 0 to 1.")
