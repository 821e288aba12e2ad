"""Variances along differences of a head's weights, from the rows themselves: no covariance is ever made.

Shapes: n rows, K features, C classes, P classes of interest, R rows of those classes.

    (w_c − w_y)ᵀ Σ^y (w_c − w_y) = Σ_j v_j ((w_c − w_y)·(f_j − μ^y))² / Σ_j v_j,   over the rows j of class y

with the weighted mean μ^y, and v_j = 1 unless rows have weights: two products of R × K × C, forward and backward.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

__all__ = ["projected_variances"]

MOST_CELLS = 1 << 24
"""Rows times classes up to which projections of rows are a table; above, they are made again where they are needed."""


def projected_variances(
    weight: Tensor,
    features: Tensor,
    labels: Tensor,
    mass: Tensor,
    classes: Tensor | None = None,
    row_weights: Tensor | None = None,
) -> Tensor:
    """The table (P, C) of these variances, y in `classes` (None: all), differentiable in W.

    Shapes: `weight` W (C, K), `features` (n, K), `labels` (n,), of which C stands for no class, `row_weights` v (n,) or
    None for ones, `mass` (C + 1,) the rows of each class, or the sum of their weights.

    >>> import torch
    >>> f, y = torch.tensor([[0.0], [2.0], [9.0]]), torch.tensor([0, 0, 2])
    >>> projected_variances(torch.tensor([[0.0], [1.0]]), f, y, torch.tensor([2, 0, 1]))
    tensor([[0., 1.],
            [0., 0.]])
    """
    c = weight.shape[0]
    if classes is None:
        # Rows without a class come along, under the label of none: summed apart from the others.
        label = place = labels.clone()
        rows, n, v = features, mass, row_weights
    else:
        classes = classes.to(labels.device)
        position = labels.new_full((c + 1,), -1)
        position[classes] = torch.arange(classes.shape[0], device=position.device)
        place = position.index_select(0, labels)
        keep = place.ge(0).nonzero()[:, 0]
        place = place.index_select(0, keep)
        label = classes.index_select(0, place)
        rows, n = features.index_select(0, keep), mass.index_select(0, classes)
        v = None if row_weights is None else row_weights.index_select(0, keep)
    # A variance does not ask where zero is: taking it among the rows keeps digits when they all lie far from it.
    rows = rows.to(weight)
    rows = rows - rows[:1] if rows is features else rows.sub_(rows[:1].clone())
    n = n.to(weight.dtype)
    n = n.clamp_min(1) if row_weights is None else torch.where(n > 0, n, 1.0)
    arguments = (rows, label, place, n, None if v is None else v.to(weight.dtype))
    function = _TiledVariances if rows.shape[0] * c > MOST_CELLS else _ProjectedVariances
    table = function.apply(  # type: ignore[no-untyped-call]
        weight, *(None if t is None else t.to(weight.device) for t in arguments)
    )
    return cast("Tensor", table)[:c]


class _ProjectedVariances(torch.autograd.Function):
    """Variance of (w_c − w_y)·x_j over the rows j at each place, y = label_j.

    Shapes: `weight` (C, K), `x` (R, K), `label` and `place` (R,), `count` (P,), `v` (R,) or None, result (P, C). The
    mean is taken off after the projection, where the rows are as short as C and not as long as K. Rows are summed by
    place with `index_add_` and spread with `index_select`: a fraction of the cost of products with a one-hot matrix.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, weight: Tensor, x: Tensor, label: Tensor, place: Tensor, count: Tensor, v: Tensor | None
    ) -> Tensor:
        c = weight.shape[0]
        n = count[:, None]
        # Products with 31 columns take twice the time of those with 32: work on a multiple of eight. With eight it is
        # twice as fast the other way round.
        w = F.pad(weight, (0, 0, 0, -c % 8 or 8))
        d = x @ w.T if w.shape[0] > 8 else (w @ x.T).T.contiguous()  # (R, C), at least one column more than classes
        own = label[:, None]
        d -= d.gather(1, own)
        d -= (d.new_zeros(n.shape[0], d.shape[1]).index_add_(0, place, _times(d, v)) / n).index_select(0, place)
        cast("Any", ctx).save_for_backward(x, d, own, place, n, v)
        return d.new_zeros(n.shape[0], d.shape[1]).index_add_(0, place, _times(d.square(), v))[:, :c] / n

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, d, own, place, n, v = cast("Any", ctx).saved_tensors
        c = grad.shape[1]
        h = F.pad(grad * (2 / n), (0, d.shape[1] - c)).index_select(0, place)  # (R, C)
        h *= d
        h = _times(h, v)
        # d is zero at a row's own class, where the gradient is minus the sum of the others.
        h.scatter_(1, own, h.sum(1, keepdim=True).neg_())
        return (h.T @ x)[:c], None, None, None, None, None


class _TiledVariances(torch.autograd.Function):
    """The same as `_ProjectedVariances`, some columns at a time, for tables (R, C) that would take much memory.

    Columns are independent but for x_j·w_y, which is computed first. Nothing of size R×C is kept for the backward pass.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, weight: Tensor, x: Tensor, label: Tensor, place: Tensor, count: Tensor, v: Tensor | None
    ) -> Tensor:
        n = count[:, None]
        # Rows never written have a label one beyond the classes.
        own = torch.linalg.vecdot(x, F.pad(weight, (0, 0, 0, 1)).index_select(0, label))[:, None]  # (R, 1)
        cast("Any", ctx).save_for_backward(weight, x, label, own, place, n, v)
        table = weight.new_empty(n.shape[0], weight.shape[0])
        for columns in _tiles(x, weight):
            d = _centred(x, weight[columns], own, place, n, v)
            table[:, columns] = d.new_zeros(n.shape[0], d.shape[1]).index_add_(0, place, _times(d.square_(), v)) / n
        return table

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, x, label, own, place, n, v = cast("Any", ctx).saved_tensors
        out, others = F.pad(weight, (0, 0, 0, 1)).zero_(), torch.zeros_like(own)
        for columns in _tiles(x, weight):
            h = _times(_centred(x, weight[columns], own, place, n, v), v)
            h *= (grad[:, columns] * (2 / n)).index_select(0, place)
            out[: weight.shape[0]][columns] = h.T @ x
            others += h.sum(1, keepdim=True)
        return out.index_add_(0, label, x * others, alpha=-1)[:-1], None, None, None, None, None


def _tiles(x: Tensor, weight: Tensor) -> list[slice]:
    step = max(MOST_CELLS // 4 // x.shape[0], 1)
    return [slice(start, start + step) for start in range(0, weight.shape[0], step)]


def _centred(x: Tensor, w: Tensor, own: Tensor, place: Tensor, n: Tensor, v: Tensor | None) -> Tensor:
    """(w_c − w_y)·x_j less its mean over the rows at the same place: (R, columns)."""
    d = x @ w.T
    d -= own
    d -= (d.new_zeros(n.shape[0], d.shape[1]).index_add_(0, place, _times(d, v)) / n).index_select(0, place)
    return d


def _times(table: Tensor, v: Tensor | None) -> Tensor:
    """A row of the table times the weight of that row."""
    return table if v is None else table * v[:, None]
