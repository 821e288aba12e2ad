"""The largest singular values of a batch of features.

Shapes: B samples, K features.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from tsadapt.core.checks import check_matrix
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = ["largest_singular_energy"]


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
