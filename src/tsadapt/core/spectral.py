"""Singular values of a batch: the largest ones of its features, and the sum of those of its predictions.

Shapes: B samples, K features, C classes.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

from tsadapt.core.checks import check_logits, check_matrix, check_prior
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = ["largest_singular_energy", "nuclear_discrepancy", "nuclear_norm", "nuclear_norm_loss"]


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
    """‖A‖_* = Σ_i s_i, the sum of the singular values of a matrix (B, C).

    Its gradient is U Vᵀ, over the singular values that are not zero but for rounding: the shortest subgradient, so
    equal and vanishing values do no harm. In float32 or wider. A matrix that is not finite gives NaN.

    >>> import torch
    >>> nuclear_norm(torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]])).item()
    4.0
    """
    check_matrix("matrix", matrix, None, matrix.shape[-1], "two dimensions")
    with full_precision(matrix):
        a = matrix.to(computing_dtype(matrix))
        if not bool(a.detach().isfinite().all()):  # the decomposition would stop with an error of its own
            return a.sum() * torch.nan
        return cast("Tensor", _NuclearNorm.apply(a))  # type: ignore[no-untyped-call]


def nuclear_norm_loss(logits: Tensor, prior: Tensor | None = None) -> Tensor:
    """The negative mean singular value of the predictions (BNM; Cui et al., 2020).

        −‖P‖_* / min(B, C),    P = softmax(logits)

    Shape: `logits` (B, C). The norm lies between √(B/C), of uniform predictions, and √(B·min(B, C)), of certain ones
    spread evenly over the classes. With class shares `prior` π (C,) it is the norm of P diag(√(C·π)), which is largest
    for certain predictions of these shares. Computed in float32 or wider.

    >>> import torch
    >>> round(nuclear_norm_loss(torch.eye(5).repeat(4, 1) * 1e4).item(), 4)  # −10/5
    -2.0
    """
    check_logits(logits)
    check_prior(prior, logits.shape[1])
    with full_precision(logits):
        p = logits.to(computing_dtype(logits)).softmax(1)
        if prior is not None:
            p = p * (prior.to(p) * prior.numel()).sqrt()
        return -nuclear_norm(p) / min(p.shape)


def nuclear_discrepancy(logits_s: Tensor, logits_t: Tensor) -> Tensor:
    """NWD = ‖P_s‖_*/B_s − ‖P_t‖_*/B_t, P = softmax(logits): how much surer and more varied predictions are on s.

    The nuclear-norm Wasserstein discrepancy, with the classifier as its own critic (Chen et al., 2022). Between −1 and
    1, and 0 for equal predictions. Each domain is divided by its own number of rows.

    Shapes: `logits_s` (B_s, C), `logits_t` (B_t, C).

    >>> import torch
    >>> sure, unsure = 100 * torch.eye(4), torch.zeros(4, 4)
    >>> round(nuclear_discrepancy(sure, unsure).item(), 6)  # 4/4 − 1/4
    0.75
    """
    check_matrix("logits_t", logits_t, None, logits_s.shape[-1], f"logits_s has {logits_s.shape[-1]} classes")
    with full_precision(logits_s):
        norms = []
        for logits in (logits_s, logits_t):
            p = F.softmax(logits.to(computing_dtype(logits_s, logits_t)), dim=1)
            norms.append(nuclear_norm(p) / len(p))
        return norms[0] - norms[1]


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


class _NuclearNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, a: Tensor) -> Tensor:
        u, s, vh = torch.linalg.svd(a, full_matrices=False)
        kept = s > max(a.shape) * torch.finfo(a.dtype).eps * s[:1]
        cast("Any", ctx).save_for_backward((u * kept) @ vh)
        return cast("Tensor", s.sum())

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> Tensor:
        (directions,) = cast("Any", ctx).saved_tensors
        return cast("Tensor", grad * directions)
