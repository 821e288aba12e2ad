"""The class-wise statistics that terms share: one object a domain, estimator and head, written once an iteration."""

from collections.abc import Iterable
from typing import cast

from torch import Tensor, nn

from tsadapt.core import FeatureMemory, IterativeMoments
from tsadapt.core.merged import ShardedMemory
from tsadapt.objectives.base import ClassStatistics, Context, Domain, Estimator, Outputs, StatisticsRequest, View

__all__ = ["SharedStatistics"]


class SharedStatistics(nn.Module):
    """What the terms asked for. The target's rows count under their pseudo-labels: the argmax of the predictions.

    Rows whose labels are known, and trained on, count under these.
    """

    def __init__(self, requests: Iterable[StatisticsRequest], context: Context) -> None:
        super().__init__()
        self.context = context
        wanted: dict[tuple[Domain, Estimator], bool] = {}
        for request in requests:
            key = (request.domain, request.estimator)
            wanted[key] = wanted.get(key, False) or request.covariance
        self.kept = nn.ModuleDict()
        for (domain, estimator), covariance in sorted(wanted.items()):
            size = context.sizes[domain == "target"]
            self.kept[_key(domain, estimator)] = nn.ModuleList(
                _make(estimator, size, dim, covariance, context) for dim in context.head_dims
            )

    def of(self, domain: Domain, estimator: Estimator, head: int) -> ClassStatistics:
        """The statistics of a domain and head, which some term asked for."""
        found = self.find(domain, estimator, head)
        if found is None:
            raise ValueError(f"no term asked for {estimator} statistics of the {domain}")
        return found

    def find(self, domain: Domain, estimator: Estimator, head: int) -> ClassStatistics | None:
        """The same; None if no term asked for them."""
        key = _key(domain, estimator)
        return cast("ClassStatistics", cast("nn.ModuleList", self.kept[key])[head]) if key in self.kept else None

    @property
    def memories(self) -> bool:
        """Whether there is a memory to fill before the first step."""
        return any(key.endswith("memory") for key in self.kept)

    def observe(self, out: Outputs, filling: bool = False) -> None:
        """Take in the batch: source rows with their labels, target rows with pseudo-labels; `filling` memories only."""
        for key, kept in self.kept.items():
            if filling and not key.endswith("memory"):
                continue
            for i, head in enumerate(out.heads):
                statistics = cast("ClassStatistics", cast("nn.ModuleList", kept)[i])
                if key.startswith("source"):
                    _write(statistics, head.source, out.labels())
                elif head.target is not None and out.target is not None:
                    guess = out.target.logits.detach().argmax(1)
                    _write(statistics, head.target, self.context.pseudo_labels(out.target.index, guess))


def _key(domain: Domain, estimator: Estimator) -> str:
    return f"{domain}-{estimator}"


def _make(estimator: Estimator, size: int, dim: int, covariance: bool, context: Context) -> ClassStatistics:
    classes = len(context.classes)
    if estimator == "iterative":
        return IterativeMoments(classes, dim)
    # A domain whose covariance nobody uses needs no second moments, whatever its size.
    second_moments, dtype, make = None if covariance else False, context.memory_dtype, context.memory_rows
    if context.processes is not None:
        return ShardedMemory(
            context.processes, size, dim, classes, make_rows=make, dtype=dtype, second_moments=second_moments
        )
    rows = None if make is None else make(size, dim)
    return FeatureMemory(size, dim, classes, dtype=dtype, second_moments=second_moments, rows=rows)


def _write(statistics: ClassStatistics, view: View, labels: Tensor) -> None:
    if isinstance(statistics, IterativeMoments):
        statistics.update(view.features, labels)
    else:
        statistics.write(view.index, view.features, labels)
