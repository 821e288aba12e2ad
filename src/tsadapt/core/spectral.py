"""Singular values of a batch of features or predictions.

Shapes: B samples, K features, C classes.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from tsadapt.core.checks import check_logits, check_matrix
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = ["largest_singular_energy", "nuclear_norm", "nuclear_norm_loss"]


def largest_singular_energy(features: Tensor, k: int = 1) -> Tensor:
    """Σ_{i≤k} s_i², the squares of the k largest singular values of a batch (B, K) (BSP; Chen et al., 2019).

    They are the largest eigenvalues of F Fᵀ (or FᵀF, whichever is smaller), and their gradient is 2 U_k U_kᵀ F: nothing
    is differentiated through singular vectors, so equal and vanishing values do no harm. In float32 or wider.

    >>> import torch
    >>> round(largest_singular_energy(torch.tensor([[3.0, 0.0], [0.0, 1.0]])).item(), 4)
    9.0
    """
    check_matrix("features", features, None, features.shape[-1], "samples by features")
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1.")
    with full_precision(features):
        f = features.to(computing_dtype(features))
        return cast("Tensor", _LargestEnergy.apply(f, min(k, *f.shape)))  # type: ignore[no-untyped-call]


def nuclear_norm(matrix: Tensor) -> Tensor:
    """‖A‖_* = Σ_i s_i, the sum of the singular values of a matrix.

    Its gradient is U Vᵀ: nothing is differentiated through singular vectors, so equal and vanishing values do no harm.
    In float32 or wider. A matrix that is not finite gives NaN.

    >>> import torch
    >>> round(nuclear_norm(torch.tensor([[3.0, 0.0], [0.0, -1.0]])).item(), 4)
    4.0
    """
    check_matrix("matrix", matrix, None, matrix.shape[-1], "rows by columns")
    with full_precision(matrix):
        a = matrix.to(computing_dtype(matrix))
        if not bool(a.detach().isfinite().all()):  # the decomposition would stop with an error of its own
            return a.sum() * torch.nan
        return cast("Tensor", torch.linalg.svdvals(a).sum())


def nuclear_norm_loss(logits: Tensor) -> Tensor:
    """The negative mean singular value of the predictions (BNM; Cui et al., 2020).

        −‖P‖_* / min(B, C),    P = softmax(logits)

    Shape: `logits` (B, C). The norm lies between √(B/C), of uniform predictions, and √(B·min(B, C)), of certain ones
    spread evenly over the classes. Computed in float32 or wider.

    >>> import torch
    >>> round(nuclear_norm_loss(torch.eye(5).repeat(4, 1) * 1e4).item(), 4)  # −10/5
    -2.0
    """
    check_logits(logits)
    with full_precision(logits):
        p = logits.to(computing_dtype(logits)).softmax(1)
        return -nuclear_norm(p) / min(p.shape)


class _LargestEnergy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, f: Tensor, k: int) -> Tensor:
        wide = f.shape[0] <= f.shape[1]
        values, vectors = torch.linalg.eigh(f @ f.T if wide else f.T @ f)
        top = vectors[:, values.shape[0] - k :]
        projected = top @ (top.T @ f) if wide else (f @ top) @ top.T
        cast("Any", ctx).save_for_backward(projected)
        return cast("Tensor", values[values.shape[0] - k :].clamp_min(0).sum())

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        (projected,) = cast("Any", ctx).saved_tensors
        return 2 * grad * projected, None
