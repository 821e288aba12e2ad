"""Small random problems, in float64 unless told, with the statistics in every form the loss accepts."""

from dataclasses import dataclass

import torch
from tests.core import naive
from torch import Tensor

from tsadapt.core import ClassMoments, ClassStatistics, FeatureMemory, IterativeMoments

FORMS = ("moments", "projection", "running sums", "iterative")


@dataclass
class Problem:
    f: Tensor
    y: Tensor
    weight: Tensor
    bias: Tensor
    rows_s: Tensor
    labels_s: Tensor
    rows_t: Tensor
    labels_t: Tensor

    @property
    def logits(self) -> Tensor:
        return self.f @ self.weight.T + self.bias

    @property
    def classes(self) -> int:
        return self.weight.shape[0]

    @property
    def moments_s(self) -> ClassMoments:
        return naive.class_moments(self.rows_s, self.labels_s, self.classes)

    @property
    def moments_t(self) -> ClassMoments:
        return naive.class_moments(self.rows_t, self.labels_t, self.classes)

    @property
    def shift(self) -> Tensor:
        return self.moments_t.mean - self.moments_s.mean

    def statistics(self, form: str) -> tuple[ClassStatistics, ClassStatistics]:
        if form == "moments":
            return self.moments_s, self.moments_t
        return (
            _statistics(form, self.rows_s, self.labels_s, self.classes),
            _statistics(form, self.rows_t, self.labels_t, self.classes),
        )


def _statistics(form: str, rows: Tensor, labels: Tensor, classes: int) -> ClassStatistics:
    if form == "iterative":
        iterative = IterativeMoments(classes, rows.shape[1])
        for part in torch.arange(len(rows)).split(7):
            iterative.update(rows[part], labels[part])
        return iterative
    # Larger than what is written: rows never written must not count.
    second_moments = form == "running sums"
    memory = FeatureMemory(len(rows) + 5, rows.shape[1], classes, dtype=rows.dtype, second_moments=second_moments)
    memory.write(torch.arange(len(rows)) + 3, rows, labels)
    return memory


def problem(
    seed: int = 0, b: int = 6, classes: int = 4, dim: int = 5, rows: int = 60, dtype: torch.dtype = torch.float64
) -> Problem:
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=dtype)

    def labels(n: int) -> Tensor:
        return torch.cat([torch.arange(classes), torch.randint(classes, (n - classes,), generator=g)])

    y_s, y_t = labels(rows), labels(rows)
    centres = normal(classes, dim)
    return Problem(
        f=normal(b, dim),
        y=torch.randint(classes, (b,), generator=g),
        weight=normal(classes, dim),
        bias=normal(classes),
        rows_s=centres[y_s] + normal(rows, dim),
        labels_s=y_s,
        rows_t=centres[y_t] + 0.5 + normal(rows, dim) @ normal(dim, dim),
        labels_t=y_t,
    )
