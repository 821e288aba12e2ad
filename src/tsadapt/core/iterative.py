"""Class-wise moments accumulated batch by batch: the estimator of ISDA (Wang et al., 2019), in TSA's supplement.

Shapes: C classes, K features, B rows in a batch.
"""

import torch
from torch import Tensor

from tsadapt.core.buffers import PreciseBuffers
from tsadapt.core.checks import check_classes, check_matrix, check_vector
from tsadapt.core.moments import ClassMoments, add_outer_products

__all__ = ["IterativeMoments"]


class IterativeMoments(PreciseBuffers):
    """Moments of all rows ever seen, class by class.

        η = B_c/(N_c + B_c)
        Σ ← (1−η)Σ + ηS′ + η(1−η)(μ−m)(μ−m)ᵀ,   μ ← (1−η)μ + ηm,   N_c ← N_c + B_c

    with m (K,) and S′ (K, K) the mean and biased covariance of the B_c rows of class c in the batch. This equals the
    moments of all rows at once, whatever the batches were; its flaw is only that old rows come from an old network.
    All state is in persistent buffers, in `dtype`.

    >>> import torch
    >>> iterative = IterativeMoments(classes=2, dim=1)
    >>> iterative.update(torch.tensor([[1.0]]), torch.tensor([0]))
    >>> iterative.update(torch.tensor([[3.0]]), torch.tensor([0]))
    >>> iterative.count.tolist(), iterative.mean[0].tolist(), iterative.covariance[0].tolist()
    ([2, 0], [2.0], [[1.0]])
    """

    count: Tensor
    mean: Tensor
    covariance: Tensor

    def __init__(
        self,
        classes: int,
        dim: int,
        *,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("classes", classes), ("dim", dim)):
            if value < 1:
                raise ValueError(f"{name} is {value}, expected at least 1.")
        if dtype not in (torch.float32, torch.float64):
            raise TypeError(f"dtype is {dtype}, expected torch.float32 or torch.float64: moments need the precision.")
        self.register_buffer("count", torch.zeros(classes, dtype=torch.int64, device=device))
        self.register_buffer("mean", torch.zeros(classes, dim, dtype=dtype, device=device))
        self.register_buffer("covariance", torch.zeros(classes, dim, dim, dtype=dtype, device=device))

    @property
    def shape(self) -> tuple[int, int]:
        """(C, K)."""
        return (self.mean.shape[0], self.mean.shape[1])

    @torch.no_grad()
    def update(self, features: Tensor, labels: Tensor) -> None:
        """Take in a batch of `features` (B, K) with `labels` (B,); rows that are not finite are skipped."""
        c, k = self.shape
        check_matrix("features", features, None, k, f"these moments are of {k} features")
        check_vector("labels", labels, features.shape[0])
        check_classes("labels", labels, c)
        f = features.detach().to(self.mean.device, self.mean.dtype)
        labels = labels.to(self.mean.device, torch.int64)
        finite = f.isfinite().all(1)
        if not bool(finite.all()):
            f, labels = f[finite], labels[finite]
        if not labels.numel():
            return

        met, place = torch.unique(labels, return_inverse=True)
        b = torch.bincount(place).to(f.dtype)[:, None]  # B_c, (P, 1)
        m = f.new_zeros(met.numel(), k).index_add_(0, place, f) / b
        count = self.count.index_select(0, met)
        eta = b / (count[:, None] + b)
        mu = self.mean.index_select(0, met)

        # ηS′ is a sum over the rows of the class, and the last term is one row more: one product does both.
        self.covariance.index_copy_(0, met, self.covariance.index_select(0, met) * (1 - eta)[:, :, None])
        rows = (f - m.index_select(0, place)) * (eta / b).sqrt().index_select(0, place)
        between = (mu - m) * (eta * (1 - eta)).sqrt()
        both = torch.cat([rows, between])
        add_outer_products(self.covariance, torch.cat([labels, met]), both, both)
        self.mean.index_copy_(0, met, mu + eta * (m - mu))
        self.count.index_copy_(0, met, count + b[:, 0].to(torch.int64))

    def moments(self) -> ClassMoments:
        """Count, mean and covariance of every class, as they stand (not a copy)."""
        return ClassMoments(self.count, self.mean, self.covariance)

    def class_means(self, classes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Counts (P,) and means (P, K) of some classes (None: all)."""
        return self.moments().class_means(classes)

    def variances_along(
        self, weight: Tensor, classes: Tensor | None = None, means: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """(w_c − w_y)ᵀ Σ^y (w_c − w_y) for y in `classes` (None: all) and every c: (P, C), differentiable in W."""
        return self.moments().variances_along(weight, classes)

    def total_variances(self) -> Tensor:
        """The trace of each class's covariance (C,)."""
        return self.covariance.diagonal(dim1=1, dim2=2).sum(1)

    def factor(self, label: int) -> Tensor:
        """The symmetric root of Σ^label: (K, K)."""
        return self.moments().factor(label)

    def pooled(self) -> ClassMoments:
        """All classes as one."""
        return self.moments().pooled()
