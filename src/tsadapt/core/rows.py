"""Class-wise statistics of rows that are given with their labels, and weights if rows do not count alike.

Shapes: n rows, K features, C classes, P classes of interest.
"""

import torch
from torch import Tensor

from tsadapt.core.checks import check_matrix, check_vector
from tsadapt.core.moments import ClassMoments
from tsadapt.core.projection import projected_variances

__all__ = ["RowStatistics"]


class RowStatistics:
    """The class-wise moments of rows f_j under labels y_j and with weights v_j, for labels or weights of one's own.

        μ^c = Σ_{j: y_j = c} v_j f_j / V_c,   Σ^c = Σ_{j: y_j = c} v_j (f_j − μ^c)(f_j − μ^c)ᵀ / V_c,   V_c = Σ v_j

    Shapes: `features` (n, K), of a memory, say; `labels` (n,), where `classes` stands for no class at all; `weights`
    (n,), not negative, None for ones. All are constants, and looked at rather than copied. Means cost a pass over the
    rows, and variances one projection of them, as those of a `FeatureMemory` without running sums.

    A class counts the rows that have a weight above zero. With equal weights the moments are those of a memory.

    >>> import torch
    >>> rows = torch.tensor([[0.0], [4.0], [9.0]])
    >>> of = RowStatistics(rows, torch.tensor([0, 0, 2]), classes=2, weights=torch.tensor([3.0, 1.0, 1.0]))
    >>> of.moments().count.tolist(), of.moments().mean.tolist(), of.moments().covariance.flatten().tolist()
    ([2, 0], [[1.0], [0.0]], [3.0, 0.0])
    """

    def __init__(self, features: Tensor, labels: Tensor, classes: int, weights: Tensor | None = None) -> None:
        check_matrix("features", features, None, features.shape[-1], "rows by features")
        check_vector("labels", labels, features.shape[0])
        if weights is not None and tuple(weights.shape) != tuple(labels.shape):
            raise ValueError(f"weights has shape {tuple(weights.shape)}, expected {tuple(labels.shape)}: one a row.")
        self.features, self.classes = features.detach(), classes
        self.labels = labels.to(features.device, torch.int64)
        self.weights = None if weights is None else weights.detach().to(features.device, torch.float64)
        if self.weights is not None:
            self.labels = torch.where(self.weights > 0, self.labels, classes)
        self.count = torch.bincount(self.labels, minlength=classes + 1)
        zeros = torch.zeros(classes + 1, dtype=torch.float64, device=features.device)
        self.mass = self.count if self.weights is None else zeros.index_add_(0, self.labels, self.weights)

    @property
    def shape(self) -> tuple[int, int]:
        """(C, K)."""
        return (self.classes, self.features.shape[1])

    def class_means(self, classes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Counts (P,) and means (P, K), in float64, of some classes (None: all); the mean of an empty class is zero."""
        if classes is None:
            rows, place, count, mass = self.features, self.labels, self.count[:-1], self.mass[:-1]
            v = self.weights
        else:
            classes = classes.to(self.labels.device)
            position = self.labels.new_full((self.classes + 1,), -1)
            position[classes] = torch.arange(classes.shape[0], device=position.device)
            place = position.index_select(0, self.labels)
            keep = place.ge(0).nonzero()[:, 0]
            place, rows = place.index_select(0, keep), self.features.index_select(0, keep)
            count, mass = self.count.index_select(0, classes), self.mass.index_select(0, classes)
            v = None if self.weights is None else self.weights.index_select(0, keep)
        weighted = rows.double() if v is None else rows.double() * v[:, None]
        total = weighted.new_zeros(count.shape[0] + 1, rows.shape[1]).index_add_(0, place, weighted)[: count.shape[0]]
        return count, total / torch.where(mass > 0, mass, 1)[:, None]

    def variances_along(
        self, weight: Tensor, classes: Tensor | None = None, means: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """(w_c − w_y)ᵀ Σ^y (w_c − w_y) for y in `classes` (None: all) and every c: (P, C), differentiable in W."""
        return projected_variances(weight, self.features, self.labels, self.mass, classes, self.weights)

    def rows_of(self, label: int) -> tuple[Tensor, Tensor]:
        """The rows of a class (n_y, K), and how much each counts (n_y,)."""
        mine = self.labels == label
        rows = self.features[mine]
        return rows, rows.new_ones(len(rows)) if self.weights is None else self.weights[mine]

    def factor(self, label: int) -> Tensor:
        """The centred rows of a class times the roots of their shares: A (n_y, K) with AᵀA = Σ^label."""
        mine = self.labels == label
        rows = self.features[mine].double()
        v = torch.ones_like(rows[:, 0]) if self.weights is None else self.weights[mine]
        share = (v / v.sum().clamp_min(torch.finfo(v.dtype).tiny))[:, None]
        return ((rows - (share * rows).sum(0)) * share.sqrt()).to(self._computing)

    def moments(self) -> ClassMoments:
        """Count, mean and covariance of every class: (C,), (C, K), (C, K, K)."""
        count, mean = self.class_means()
        covariance = torch.stack([a.T @ a for a in map(self.factor, range(self.classes))])
        return ClassMoments(count, mean.to(covariance), covariance)

    def total_variances(self) -> Tensor:
        """The trace of each class's covariance (C,), in float64, without the covariances."""
        v = torch.ones_like(self.labels, dtype=torch.float64) if self.weights is None else self.weights
        squares = v.new_zeros(self.classes + 1).index_add_(0, self.labels, v * self.features.double().square().sum(1))
        mass, mean = self.mass[:-1], self.class_means()[1]
        return (squares[:-1] / torch.where(mass > 0, mass, 1) - mean.square().sum(1)).clamp_min(0)

    def pooled(self) -> ClassMoments:
        """All classes as one: mean of all rows, and the average within-class covariance, both weighted."""
        count, means = self.class_means()
        v = torch.ones_like(self.labels, dtype=torch.float64) if self.weights is None else self.weights
        v = torch.where(self.labels < self.classes, v, 0.0)
        share = (v / v.sum().clamp_min(torch.finfo(v.dtype).tiny))[:, None]
        rows = self.features.double()
        around = torch.cat([means, means.new_zeros(1, means.shape[1])]).index_select(0, self.labels)
        centred = (rows - around) * share.sqrt()
        mean, covariance = (share * rows).sum(0, keepdim=True), centred.T @ centred
        return ClassMoments(count.sum(0, keepdim=True), mean.to(self._computing), covariance.to(self._computing)[None])

    @property
    def _computing(self) -> torch.dtype:
        return torch.promote_types(self.features.dtype, torch.float32)
