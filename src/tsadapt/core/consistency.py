"""Two views of the same rows, and labels that one view gives the other where it is sure.

Shapes: B samples, C classes; inputs of any shape (B, …).
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.checks import check_logits
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = ["confident_label_loss", "dropout_view"]


def confident_label_loss(weak: Tensor, strong: Tensor, confidence: float) -> Tensor:
    """Cross-entropy of one view with the labels that another view is sure of (FixMatch; Sohn et al., 2020).

        L = (1/B) Σ_j 1[max_c P_jc > τ]·(−log softmax(strong_j)[argmax_c P_jc]),   P = softmax(weak), a constant

    The mean is over all rows: where few are sure, the loss is small.

    Shapes: logits `weak` and `strong` (B, C); `confidence` τ. In float32 or wider.

    >>> import torch
    >>> weak = torch.tensor([[9.0, 0.0], [0.0, 0.0]])  # sure of the first row's class, and undecided
    >>> round(confident_label_loss(weak, torch.zeros(2, 2), 0.9).item(), 4)  # ½·log 2
    0.3466
    """
    check_logits(weak)
    check_logits(strong)
    if weak.shape != strong.shape:
        raise ValueError(f"strong is {tuple(strong.shape)}, expected {tuple(weak.shape)}: the same rows and classes.")
    with full_precision(strong):
        dtype = computing_dtype(weak, strong)
        sure, labels = weak.detach().to(dtype).softmax(1).max(1)
        losses = F.cross_entropy(strong.to(dtype), labels, reduction="none")
        return torch.where(sure > confidence, losses, 0.0).mean()


def dropout_view(x: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Rows some of whose values are lost: each becomes its column's mean over the batch, with probability `rate`.

    A lost value says nothing of its row, wherever the zero of its column lies: shifting or scaling a column does the
    same to its view.

    Shapes: x (B, …), result (B, …) in x's dtype; what is not floating-point becomes float32.

    >>> import torch
    >>> x = torch.tensor([[0.0, 10.0], [2.0, 30.0]])
    >>> dropout_view(x, 1.0, torch.Generator()).tolist()
    [[1.0, 20.0], [1.0, 20.0]]
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"rate is {rate}, expected a share from 0 to 1.")
    x = x if x.is_floating_point() else x.float()
    lost = torch.rand(x.shape, generator=generator) < rate
    return torch.where(lost.to(x.device), x.mean(0, keepdim=True), x)
