"""The memory module of the paper: the latest feature and (pseudo-)label of every sample of a domain.

Shapes: n samples of the domain, K features, C classes, B rows in a write, P classes of interest, R their rows.

Two exact ways lead to (w_c − w_y)ᵀ Σ^y (w_c − w_y), and neither builds a covariance per step:

projection      it is the variance of (w_c − w_y)·f over the rows of class y: send those rows through W. Two products
                of n/C × K × C for each class in the batch (forward, backward): 4·(n/C)·K·C operations.
running sums    keep Σ f fᵀ of each class: subtract the row that is replaced, add the new one. One product C × K × K
                for each class in the batch (the backward pass reuses it) and two rank-one updates for each sample, in
                float64, which counts double: (4·C + 8)·K² operations, whatever n is, and 8·C·K² bytes. Updates of few
                rows run at a fraction of the speed of large products: as measured, their 8 counts like 28.

`keeps_second_moments` compares the two.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from tsadapt.core.buffers import PreciseBuffers
from tsadapt.core.checks import check_classes, check_matrix, check_range, check_vector
from tsadapt.core.moments import ClassMoments, add_outer_products, quadratic_forms
from tsadapt.core.projection import projected_variances
from tsadapt.core.rows import RowStatistics

__all__ = ["FeatureMemory", "keeps_second_moments", "last_finite"]

SECOND_MOMENTS_LIMIT = 1 << 30
"""Bytes above which second moments are never kept unless asked for."""

REBUILD_EVERY = 1 << 17
"""Rows written before the sums are made anew from the rows: at least this many, and at least once the memory."""

CHUNK = 1 << 14
"""Rows summed at once in a rebuild, so that it needs little memory of its own."""


def keeps_second_moments(size: int, dim: int, classes: int) -> bool:
    """Whether running second moments cost less a step than projecting the rows of the classes in a batch.

    >>> keeps_second_moments(795, 256, 31)  # webcam of Office-31: 26 rows a class
    False
    >>> keeps_second_moments(55388, 256, 12)  # VisDA-2017: 4,616 rows a class
    True
    """
    projection = 4 * (size / classes) * dim * classes
    running = (4 * classes + 28) * dim * dim
    return running < projection and 8 * classes * dim * dim <= SECOND_MOMENTS_LIMIT


class FeatureMemory(PreciseBuffers):
    """The latest feature and label of each of `size` samples, with the class-wise moments of what was written.

        f_j ← f_j^{(i)},  y_j ← y_j^{(i)},  j ∈ B^{(i)}        (the paper's memory update)

    A row that was never written counts for nothing, and a row whose label changes leaves its old class. Rows are
    stored detached, in `dtype` on `device` (float16 on the CPU for long memories); the sums are kept in float64 of the
    rows as stored, so a row leaves exactly what it brought. All state is in persistent buffers: `.to(device)` moves
    them, and no cast (`.half()`, `.bfloat16()`) touches their precision. With `rows`, a tensor (n, K) of zeros of your
    own (mapped from a file, say), they are kept there, and the memory stays where that is.

    `second_moments` chooses between running sums (True) and projection (False); None takes the cheaper one.

    >>> import torch
    >>> memory = FeatureMemory(size=100, dim=2, classes=3)
    >>> memory.write(torch.tensor([7, 8]), torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.tensor([1, 1]))
    >>> memory.moments().count.tolist(), memory.moments().mean[1].tolist()
    ([0, 2, 0], [2.0, 0.0])
    """

    features: Tensor
    labels: Tensor
    count: Tensor
    total: Tensor
    second: Tensor | None

    def __init__(
        self,
        size: int,
        dim: int,
        classes: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        second_moments: bool | None = None,
        rows: Tensor | None = None,
    ) -> None:
        super().__init__()
        if rows is not None:
            check_matrix("rows", rows, size, dim, "rows by features")
            dtype, device, self.stays = rows.dtype, rows.device, True
        for name, value in (("size", size), ("dim", dim), ("classes", classes)):
            if value < 1:
                raise ValueError(f"{name} is {value}, expected at least 1.")
        if not dtype.is_floating_point:
            raise TypeError(f"dtype is {dtype}, expected a floating-point dtype such as torch.float16.")
        if second_moments is None:
            second_moments = keeps_second_moments(size, dim, classes)
        self.size, self.dim, self.classes = size, dim, classes
        self.rebuild_every = max(REBUILD_EVERY, size)
        # The label `classes` stands for "never written", so the sums have one row more than there are classes.
        self.register_buffer("features", torch.zeros(size, dim, dtype=dtype, device=device) if rows is None else rows)
        self.register_buffer("labels", torch.full((size,), classes, device=device))
        self.register_buffer("count", torch.zeros(classes + 1, dtype=torch.int64, device=device))
        self.register_buffer("total", torch.zeros(classes + 1, dim, dtype=torch.float64, device=device))
        second = torch.zeros(classes, dim, dim, dtype=torch.float64, device=device) if second_moments else None
        self.register_buffer("second", second)
        self.written = 0
        self.count[classes] = size

    @property
    def shape(self) -> tuple[int, int]:
        """(C, K)."""
        return (self.classes, self.dim)

    @property
    def strategy(self) -> Literal["projection", "running sums"]:
        """Which of the two exact ways this memory takes."""
        return "projection" if self.second is None else "running sums"

    def write(self, index: Tensor, features: Tensor, labels: Tensor) -> None:
        """Replace rows `index` (B,) by `features` (B, K) under `labels` (B,).

        An index twice in one write: the last wins. Rows with a value that is not finite (after the cast to the storage
        dtype) are skipped: they would poison the sums for ever.
        """
        check_matrix("features", features, None, self.dim, f"this memory holds {self.dim} features a row")
        check_vector("index", index, features.shape[0])
        check_vector("labels", labels, features.shape[0])
        check_classes("labels", labels, self.classes)
        rows = index.tolist()
        check_range("index", rows, self.size, "rows in this memory")
        memory, where = self.features, self.features.device
        new = features.detach().to(where, memory.dtype)
        index, labels = index.to(where, torch.int64), labels.to(where, torch.int64)
        if len(set(rows)) < len(rows) or not math.isfinite(new.sum()):
            keep = last_finite(index, new)
            index, new, labels = index[keep], new[keep], labels[keep]

        old_labels = self.labels.index_select(0, index)
        old = memory.index_select(0, index).double()
        memory.index_copy_(0, index, new)
        self.labels.index_copy_(0, index, labels)
        new = new.double()
        one = labels.new_ones(1).expand_as(labels)
        self.count.index_add_(0, old_labels, one, alpha=-1).index_add_(0, labels, one)
        self.total.index_add_(0, old_labels, old, alpha=-1).index_add_(0, labels, new)
        if self.second is not None:
            add_outer_products(
                self.second, torch.cat([old_labels, labels]), torch.cat([old.neg(), new]), torch.cat([old, new])
            )
        self.written += index.shape[0]
        if self.written >= self.rebuild_every:
            self.rebuild()

    def rebuild(self) -> None:
        """Make the sums anew from the rows, which forgets all rounding; `write` does it often enough by itself."""
        self.written = 0
        self.count.copy_(torch.bincount(self.labels, minlength=self.classes + 1))
        self.total.zero_()
        if self.second is not None:
            self.second.zero_()
        order = self.labels.argsort(stable=True)
        start = 0
        for c, size in enumerate(self.count[:-1].tolist()):
            for rows in torch.split(order[start : start + size], CHUNK):
                f = self.features.index_select(0, rows).double()
                self.total[c] += f.sum(0)
                if self.second is not None:
                    self.second[c].addmm_(f.T, f)
            start += size

    def deal(self, features: Tensor, labels: Tensor) -> None:
        """Take up all rows (n, K) and their labels (n,), of which C says that a row was never written."""
        self.features.copy_(features)
        self.labels.copy_(labels)
        self.rebuild()

    def moments(self) -> ClassMoments:
        """Count, mean and covariance of every class: (C,), (C, K), (C, K, K)."""
        count, mean = self.class_means()
        if self.second is None:
            covariance = torch.stack([a.T @ a for a in map(self.factor, range(self.classes))])
        else:
            mu = mean[:, :, None]
            covariance = self.second / count.clamp_min(1)[:, None, None] - mu * mu.mT
        dtype = self._computing
        return ClassMoments(count.clone(), mean.to(dtype), covariance.to(dtype))

    def class_means(self, classes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Counts (P,) and means (P, K), in float64, of some classes (None: all); the mean of an empty class is zero."""
        if classes is None:
            count, total = self.count[:-1], self.total[:-1]
        else:
            classes = classes.to(self.count.device)
            count, total = self.count.index_select(0, classes), self.total.index_select(0, classes)
        return count, total / count.clamp_min(1)[:, None]

    def under(self, labels: Tensor, weights: Tensor | None = None) -> RowStatistics:
        """The statistics of the rows under other labels (n,), where `classes` is none, and with weights (n,)."""
        return RowStatistics(self.features, labels, self.classes, weights)

    @property
    def mass(self) -> Tensor:
        """How much each class counts (C + 1,): its rows."""
        return self.count

    @property
    def block(self) -> slice:
        """Which rows are here: all of them."""
        return slice(0, self.size)

    def rows_of(self, label: int) -> tuple[Tensor, Tensor]:
        """The rows of a class (n_y, K), and how much each counts (n_y,)."""
        rows = self.features[self.labels == label]
        return rows, rows.new_ones(len(rows))

    def total_variances(self) -> Tensor:
        """The trace of each class's covariance (C,), in float64, without the covariances."""
        count, mean = self.class_means()
        squares = self.features.double().square().sum(1)
        total = torch.zeros_like(self.count, dtype=torch.float64).index_add_(0, self.labels, squares)[:-1]
        return (total / count.clamp_min(1) - mean.square().sum(1)).clamp_min(0)

    def factor(self, label: int) -> Tensor:
        """The centred rows of a class over the root of their number: A (n_y, K) with AᵀA = Σ^label."""
        rows = self.features[self.labels == label]
        n = max(rows.shape[0], 1)
        return (rows.double() - self.total[label] / n).div_(n**0.5).to(self._computing)

    def pooled(self) -> ClassMoments:
        """All classes as one: mean of all rows, and the average within-class covariance weighted by counts."""
        count, means = self.class_means()
        n = count.sum(0, keepdim=True)
        mean = self.total[:-1].sum(0, keepdim=True) / n.clamp_min(1)
        if self.second is None:
            around = torch.cat([means, means.new_zeros(1, self.dim)]).index_select(0, self.labels)
            centred = self.features - around.to(self._computing)
            covariance = centred.T @ centred / n.clamp_min(1)
        else:
            covariance = (self.second.sum(0) - (means * count[:, None]).T @ means) / n.clamp_min(1)
        return ClassMoments(n, mean.to(self._computing), covariance.to(self._computing)[None])

    def variances_along(
        self, weight: Tensor, classes: Tensor | None = None, means: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """(w_c − w_y)ᵀ Σ^y (w_c − w_y) for y in `classes` (None: all) and every c: (P, C), differentiable in W."""
        if self.second is not None:
            return quadratic_forms(weight, classes, self.second, *(means or self.class_means(classes)))
        return projected_variances(weight, self.features, self.labels, self.count, classes)

    @property
    def _computing(self) -> torch.dtype:
        """The dtype of what is given out: that of the rows, at least float32."""
        return torch.promote_types(self.features.dtype, torch.float32)

    def get_extra_state(self) -> Tensor:
        """Rows written since the last rebuild: with it, a restored memory rebuilds when the first would have."""
        return torch.tensor(self.written)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore what `get_extra_state` gave."""
        self.written = int(state)

    def extra_repr(self) -> str:
        """Sizes, storage and strategy, as `print(memory)` shows them."""
        return f"size={self.size}, dim={self.dim}, classes={self.classes}, {self.features.dtype}, {self.strategy}"


def last_finite(index: Tensor, features: Tensor) -> Tensor:
    """Positions of the rows to keep: finite, and the last of their index."""
    finite = features.isfinite().all(1).nonzero()[:, 0]
    ordered, order = index.index_select(0, finite).sort(stable=True)
    last = torch.ones_like(ordered, dtype=torch.bool)
    last[:-1] = ordered[1:] != ordered[:-1]
    return finite.index_select(0, order[last])
