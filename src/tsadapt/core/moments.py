"""Class-wise moments of features: how many, where, and how spread.

Shapes: C classes, K features, P classes of interest (usually those present in a batch), B rows.
    count       (C,)       number of rows of each class
    mean        (C, K)     μ^c
    covariance  (C, K, K)  Σ^c, biased: divided by the count
"""

from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

from tsadapt.core.precision import computing_dtype

__all__ = ["ClassMoments", "ClassStatistics", "add_outer_products", "quadratic_forms", "symmetric_root"]


class ClassStatistics(Protocol):
    """What the transferable loss asks of `ClassMoments`, `FeatureMemory` and `IterativeMoments` alike."""

    @property
    def shape(self) -> tuple[int, int]:
        """(C, K)."""

    def moments(self) -> "ClassMoments":
        """Count, mean and covariance of every class."""

    def class_means(self, classes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Counts (P,) and means (P, K) of some classes (None: all); the mean of an empty class is zero."""

    def variances_along(
        self, weight: Tensor, classes: Tensor | None = None, means: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """(w_c − w_y)ᵀ Σ^y (w_c − w_y) for y in `classes` (None: all) and every c: (P, C), differentiable in W.

        `means` is what `class_means(classes)` gave, for those who have asked already.
        """

    def factor(self, label: int) -> Tensor:
        """A constant A (any number of rows, K) with AᵀA = Σ^label."""

    def pooled(self) -> "ClassMoments":
        """All classes as one: mean of all rows, and the average within-class covariance weighted by counts."""


@dataclass(frozen=True)
class ClassMoments:
    """Count, mean and (biased) covariance of each class.

    Shapes: `count` (C,), `mean` (C, K), `covariance` (C, K, K).

    >>> import torch
    >>> moments = ClassMoments(torch.tensor([4, 4]), torch.zeros(2, 3), torch.eye(3).expand(2, 3, 3))
    >>> moments.shape
    (2, 3)
    """

    count: Tensor
    mean: Tensor
    covariance: Tensor

    def __post_init__(self) -> None:
        if self.mean.ndim != 2:
            raise ValueError(f"mean has shape {tuple(self.mean.shape)}, expected (classes, features).")
        c, k = self.mean.shape
        if tuple(self.count.shape) != (c,):
            raise ValueError(f"count has shape {tuple(self.count.shape)}, expected ({c},): mean has {c} rows.")
        if tuple(self.covariance.shape) != (c, k, k):
            found = tuple(self.covariance.shape)
            raise ValueError(f"covariance has shape {found}, expected ({c}, {k}, {k}): mean is ({c}, {k}).")

    @property
    def shape(self) -> tuple[int, int]:
        """(C, K)."""
        return (self.mean.shape[0], self.mean.shape[1])

    def moments(self) -> "ClassMoments":
        """These moments."""
        return self

    def class_means(self, classes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Counts (P,) and means (P, K) of some classes (None: all)."""
        if classes is None:
            return self.count, self.mean.detach()
        classes = classes.to(self.mean.device)
        return self.count.index_select(0, classes), self.mean.detach().index_select(0, classes)

    def variances_along(
        self, weight: Tensor, classes: Tensor | None = None, means: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """(w_c − w_y)ᵀ Σ^y (w_c − w_y) for y in `classes` (None: all) and every c: (P, C), differentiable in W."""
        return quadratic_forms(weight, classes, self.covariance)

    def factor(self, label: int) -> Tensor:
        """The symmetric root of Σ^label: (K, K)."""
        return symmetric_root(self.covariance[label])

    def pooled(self) -> "ClassMoments":
        """All classes as one."""
        share = self.count.to(self.mean.dtype)
        share = share / share.sum().clamp_min(1)
        mean = torch.einsum("c,ck->k", share, self.mean.detach())
        covariance = torch.einsum("c,ckl->kl", share, self.covariance.detach())
        return ClassMoments(self.count.sum(0, keepdim=True), mean[None], covariance[None])


def symmetric_root(matrix: Tensor) -> Tensor:
    """The symmetric square root of a positive semi-definite matrix, detached; rank deficiency is no trouble.

    >>> import torch
    >>> symmetric_root(torch.tensor([[4.0, 0.0], [0.0, 0.0]]))
    tensor([[2., 0.],
            [0., 0.]])
    """
    values, vectors = torch.linalg.eigh(matrix.detach().to(computing_dtype(matrix)))
    return cast("Tensor", (vectors * values.clamp_min(0).sqrt()) @ vectors.T)


def add_outer_products(matrices: Tensor, labels: Tensor, left: Tensor, right: Tensor) -> None:
    """matrices[c] += Σ_{j: labels_j = c} left_j right_jᵀ, in place; labels without a matrix are skipped.

    Shapes: `matrices` (C, K, K), `labels` (B,), `left` and `right` (B, K). One small product for each class met, so
    nothing of size B×K×K is ever made.
    """
    ordered, order = labels.sort(stable=True)
    left, right = left.index_select(0, order), right.index_select(0, order)
    found, sizes = torch.unique_consecutive(ordered, return_counts=True)
    start = 0
    for c, size in zip(found.tolist(), sizes.tolist(), strict=True):
        if c < matrices.shape[0]:
            rows = slice(start, start + size)
            matrices[c].addmm_(left[rows].T, right[rows])
        start += size


def quadratic_forms(
    weight: Tensor,
    classes: Tensor | None,
    matrices: Tensor,
    count: Tensor | None = None,
    mean: Tensor | None = None,
) -> Tensor:
    """(w_c − w_y)ᵀ Σ^y (w_c − w_y) for y in `classes` (P,) and every row w_c of `weight` (C, K): a (P, C) table.

    Σ^y is `matrices[y]`, or `matrices[y]/count[p] − mean[p] mean[p]ᵀ` when raw second moments are given with the
    counts (P,) and means (P, K) of `classes`. A single matrix serves every class. The gradient reaches `weight` only:
    ∂/∂w_c = 2 Σ^y (w_c − w_y), which the forward pass has already computed.
    """
    return cast("Tensor", _QuadraticForms.apply(weight, classes, matrices.detach(), count, mean))  # type: ignore[no-untyped-call]


class _QuadraticForms(torch.autograd.Function):
    """d_cᵀ Σ^y d_c with d_c = w_c − w_y; keeps Σ^y d_c, of shape (P, C, K), for the backward pass."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        weight: Tensor,
        classes: Tensor | None,
        matrices: Tensor,
        count: Tensor | None,
        mean: Tensor | None,
    ) -> Tensor:
        where, dtype = matrices.device, computing_dtype(matrices, weight)
        w = weight.to(where, dtype)
        own = w if classes is None else w.index_select(0, classes.to(where))  # (P, K)
        d = w - own[:, None]  # (P, C, K)
        if matrices.shape[0] == 1:
            spread = d @ matrices.to(dtype)
        elif classes is None:
            # Σ^y w_c for all y and c in one product, as Σ is symmetric; seven rows would take longer than eight.
            c = w.shape[0]
            product = F.pad(w, (0, 0, 0, -c % 8)) @ matrices.to(dtype).flatten(0, 1).T
            spread = product[:c].view(c, *own.shape).transpose(0, 1)
            spread = spread - spread.diagonal().T[:, None]
        else:
            # One by one: gathering the matrices first would copy them.
            spread = torch.empty_like(d)
            for p, label in enumerate(classes.tolist()):
                torch.mm(d[p], matrices[label].to(dtype), out=spread[p])
        if count is not None and mean is not None:
            mu = mean.to(where, dtype)
            along = mu @ w.T - torch.linalg.vecdot(mu, own)[:, None]  # (P, C)
            spread = spread.div_(count.to(where, dtype).clamp_min_(1)[:, None, None])
            spread.addcmul_(along[:, :, None], mu[:, None], value=-1)
        # Rounding may leave a variance of zero a hair below it.
        value = torch.linalg.vecdot(d, spread).clamp_min_(0)
        out = torch.promote_types(weight.dtype, torch.float32)
        cast("Any", ctx).classes = classes
        cast("Any", ctx).save_for_backward(spread.to(weight.device, out))
        return cast("Tensor", value.to(weight.device, out))

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        (spread,) = cast("Any", ctx).saved_tensors
        classes = cast("Any", ctx).classes
        each = spread * (2 * grad)[:, :, None]  # (P, C, K)
        total, own = each.sum(0), each.sum(1)
        out = total - own if classes is None else total.index_add_(0, classes, own, alpha=-1)
        return out, None, None, None, None
