"""The class-wise statistics that terms share: one object a domain, estimator and head, written once an iteration."""

from collections.abc import Iterable
from typing import cast

from torch import Tensor, nn

from tsadapt.core import FeatureMemory, IterativeMoments
from tsadapt.objectives.base import ClassStatistics, Context, Domain, Estimator, Outputs, StatisticsRequest, View

__all__ = ["SharedStatistics"]


class SharedStatistics(nn.Module):
    """What the terms asked for. The target's rows count under their pseudo-labels: the argmax of the predictions."""

    def __init__(self, requests: Iterable[StatisticsRequest], context: Context) -> None:
        super().__init__()
        wanted: dict[tuple[Domain, Estimator], bool] = {}
        for request in requests:
            key = (request.domain, request.estimator)
            wanted[key] = wanted.get(key, False) or request.covariance
        self.kept = nn.ModuleDict()
        for (domain, estimator), covariance in sorted(wanted.items()):
            size = context.sizes[domain == "target"]
            self.kept[_key(domain, estimator)] = nn.ModuleList(
                _make(estimator, size, dim, len(context.classes), covariance) for dim in context.head_dims
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
                    _write(statistics, head.target, out.target.logits.detach().argmax(1))


def _key(domain: Domain, estimator: Estimator) -> str:
    return f"{domain}-{estimator}"


def _make(estimator: Estimator, size: int, dim: int, classes: int, covariance: bool) -> ClassStatistics:
    if estimator == "iterative":
        return IterativeMoments(classes, dim)
    # A domain whose covariance nobody uses needs no second moments, whatever its size.
    return FeatureMemory(size, dim, classes, second_moments=None if covariance else False)


def _write(statistics: ClassStatistics, view: View, labels: Tensor) -> None:
    if isinstance(statistics, FeatureMemory):
        statistics.write(view.index, view.features, labels)
    else:
        statistics.update(view.features, labels)
