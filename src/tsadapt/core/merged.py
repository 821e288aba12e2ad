"""Class-wise statistics of rows that lie in several processes: each keeps its own, and small tables are summed.

Of R processes, process r has N_r^c rows of class c, with mean μ_r^c and covariance Σ_r^c. All of them together have

    N^c = Σ_r N_r^c,   μ^c = Σ_r N_r^c μ_r^c / N^c,   Σ^c = Σ_r N_r^c [Σ_r^c + (μ_r^c − μ^c)(μ_r^c − μ^c)ᵀ] / N^c

which is exact, and so is what is linear in Σ^c, such as a variance along a difference of two rows of W.

Shapes: C classes, K features, P classes of interest, n rows in all processes, m of them here.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tsadapt.core.buffers import PreciseBuffers
from tsadapt.core.checks import check_classes, check_matrix, check_range, check_vector
from tsadapt.core.memory import FeatureMemory, last_finite
from tsadapt.core.moments import ClassMoments
from tsadapt.core.processes import Processes
from tsadapt.core.rows import RowStatistics

__all__ = ["MergedRows", "ShardedMemory"]


class _Merged:
    """What is asked of class statistics, of `own` ones that lie in several processes."""

    own: FeatureMemory | RowStatistics
    processes: Processes

    @property
    def shape(self) -> tuple[int, int]:
        """(C, K)."""
        return self.own.shape

    def class_means(self, classes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Counts (P,) and means (P, K), in float64, of some classes (None: all); the mean of an empty class is zero."""
        count, _, mean = self._whole(classes)
        return count, mean

    def variances_along(
        self, weight: Tensor, classes: Tensor | None = None, means: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """(w_c − w_y)ᵀ Σ^y (w_c − w_y) for y in `classes` (None: all) and every c: (P, C), differentiable in W."""
        own = self.own.variances_along(weight, classes)
        share, apart = self._apart(classes)
        apart = apart.to(own)
        w = weight.to(own)
        mine = w if classes is None else w.index_select(0, classes.to(w.device))
        along = apart @ w.T - torch.linalg.vecdot(apart, mine)[:, None]
        return self.processes.sum(share.to(own)[:, None] * (own + along.square()))

    def moments(self) -> ClassMoments:
        """Count, mean and covariance of every class: (C,), (C, K), (C, K, K)."""
        (count, mean), (share, apart) = self.class_means(), self._apart()
        own = self.own.moments().covariance
        apart = apart.to(own)
        within = own + apart[:, :, None] * apart[:, None]
        return ClassMoments(count, mean.to(own), self.processes.sum(share.to(own)[:, None, None] * within))

    def pooled(self) -> ClassMoments:
        """All classes as one: mean of all rows, and the average within-class covariance weighted by counts."""
        count, mass, mean = self._whole()
        share, apart = self._apart()
        every = mass / mass.sum().clamp_min(torch.finfo(mass.dtype).tiny)
        mine = every * share
        own = self.own.pooled()
        covariance = mine.sum() * own.covariance[0].double() + (mine[:, None] * apart).T @ apart
        covariance = self.processes.sum(covariance)
        return ClassMoments(
            count.sum(0, keepdim=True), (every @ mean)[None].to(own.mean), covariance[None].to(own.mean)
        )

    def total_variances(self) -> Tensor:
        """The trace of each class's covariance (C,), in float64."""
        share, apart = self._apart()
        return self.processes.sum(share * (self.own.total_variances() + apart.square().sum(1)))

    def factor(self, label: int) -> Tensor:
        """The centred rows of a class times the roots of their shares: A (n_y, K) with AᵀA = Σ^label."""
        rows, mass = self.own.rows_of(label)
        sizes = self.processes.objects(len(rows))
        rows, mass = self.processes.collect(rows.double(), sizes), self.processes.collect(mass.double(), sizes)
        share = (mass / mass.sum().clamp_min(torch.finfo(mass.dtype).tiny))[:, None]
        computing = torch.promote_types(self.own.features.dtype, torch.float32)
        return ((rows - (share * rows).sum(0)) * share.sqrt()).to(computing)

    def _whole(self, classes: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Of all processes: how many rows of each class count (P,), how much (P,), and their means (P, K)."""
        count, mean = self.own.class_means(classes)
        mass = _of(self.own.mass, classes).double()[:, None]
        table = self.processes.sum(torch.cat([count[:, None].double(), mass, mass * mean.double()], 1))
        mass = table[:, 1:2]
        return table[:, 0].to(torch.int64), mass[:, 0], table[:, 2:] / torch.where(mass > 0, mass, 1)

    def _apart(self, classes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Which part of each class is here, N_r/N (P,), and how far its mean is from that of all, μ_r − μ (P, K)."""
        _, mass, mean = self._whole(classes)
        share = _of(self.own.mass, classes).double() / torch.where(mass > 0, mass, 1)
        return share, self.own.class_means(classes)[1].double() - mean


def _of(mass: Tensor, classes: Tensor | None) -> Tensor:
    return mass[:-1] if classes is None else mass.index_select(0, classes.to(mass.device))


class MergedRows(_Merged):
    """`RowStatistics` of rows of which every process has some."""

    def __init__(self, own: RowStatistics, processes: Processes) -> None:
        self.own, self.processes = own, processes


class ShardedMemory(_Merged, PreciseBuffers):
    """A `FeatureMemory` whose rows are dealt to several processes in blocks; `own` has those of this one.

    Every process writes the same batches: labels (n,) are kept by all, features by their owner. `options` are those of
    `FeatureMemory`; `make_rows` gives its `rows` (m, K) for m and K.
    """

    labels: Tensor

    def __init__(
        self,
        processes: Processes,
        size: int,
        dim: int,
        classes: int,
        *,
        make_rows: Callable[[int, int], Tensor] | None = None,
        **options: object,
    ) -> None:
        super().__init__()
        self.processes, self.size, self.dim, self.classes = processes, size, dim, classes
        self.block = processes.block(size)
        self.held = self.block.stop - self.block.start
        rows = None if make_rows is None else make_rows(max(self.held, 1), dim)
        memory = FeatureMemory(max(self.held, 1), dim, classes, rows=rows, **options)  # type: ignore[arg-type]
        self.stays = memory.stays
        self.register_buffer("labels", torch.full((size,), classes, device=memory.labels.device))
        self.own: FeatureMemory = memory

    @property
    def features(self) -> Tensor:
        """The rows that are here (m, K)."""
        return self.own.features[: self.held]

    def whole_features(self) -> Tensor:
        """The rows of all processes (n, K)."""
        return self.processes.collect(self.features, self.processes.sizes(self.size))

    def write(self, index: Tensor, features: Tensor, labels: Tensor) -> None:
        """Replace rows `index` (B,) by `features` (B, K) under `labels` (B,), as `FeatureMemory.write` does."""
        check_matrix("features", features, None, self.dim, f"this memory holds {self.dim} features a row")
        check_vector("index", index, features.shape[0])
        check_vector("labels", labels, features.shape[0])
        check_classes("labels", labels, self.classes)
        check_range("index", index.tolist(), self.size, "rows in this memory")
        where = self.labels.device
        new = features.detach().to(where, self.own.features.dtype)
        index, labels = index.to(where, torch.int64), labels.to(where, torch.int64)
        keep = last_finite(index, new)
        index, new, labels = index[keep], new[keep], labels[keep]
        self.labels.index_copy_(0, index, labels)
        mine = (index >= self.block.start) & (index < self.block.stop)
        if bool(mine.any()):
            self.own.write(index[mine] - self.block.start, new[mine], labels[mine])

    def deal(self, features: Tensor, labels: Tensor) -> None:
        """Take up this process's block of all rows (n, K) and the labels of all (n,)."""
        self.labels.copy_(labels)
        self.own.features[: self.held] = features[self.block].to(self.own.features)
        self.own.labels[: self.held] = labels[self.block].to(self.own.labels)
        self.own.rebuild()

    def under(self, labels: Tensor, weights: Tensor | None = None) -> MergedRows:
        """The statistics of the rows under other labels (n,), where `classes` is none, and with weights (n,)."""
        mine = None if weights is None else weights[self.block]
        return MergedRows(RowStatistics(self.features, labels[self.block], self.classes, mine), self.processes)
