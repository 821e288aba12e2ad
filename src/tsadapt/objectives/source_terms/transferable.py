"""The source term of the objective: cross-entropy, ISDA, TSA, or its explicit form over drawn copies.

A term looks at `Outputs.heads`, one after another, each with statistics of its own. `observe` takes the batch into the
statistics, once an iteration; `forward` gives the loss. What they keep is in buffers.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tsadapt.config import RunConfig
from tsadapt.core import (
    FeatureMemory,
    IterativeMoments,
    augmentation_strength,
    sampled_cross_entropy,
    transferable_cross_entropy,
)
from tsadapt.objectives.base import Head, Outputs, View

__all__ = ["CrossEntropy", "SourceTerm", "Statistics", "Transferable", "make_source_term"]

Statistics = FeatureMemory | IterativeMoments


class SourceTerm(nn.Module):
    """What takes the place of the source cross-entropy."""

    needs_target = False
    needs_statistics = False

    def observe(self, out: Outputs) -> None:
        """Take the batch into the statistics."""

    def forward(self, out: Outputs, generator: torch.Generator | None) -> Tensor:
        """The loss, summed over the heads."""
        return torch.stack([self.of_head(i, head, out, generator) for i, head in enumerate(out.heads)]).sum()

    def of_head(self, i: int, head: Head, out: Outputs, generator: torch.Generator | None) -> Tensor:
        """The loss of one head."""
        raise NotImplementedError(f"{type(self).__name__} has no loss")

    def describe(self, out: Outputs) -> dict[str, float | list[float]]:
        """What is worth logging beside the loss."""
        return {}


class CrossEntropy(SourceTerm):
    """Plain cross-entropy."""

    def of_head(self, i: int, head: Head, out: Outputs, generator: torch.Generator | None) -> Tensor:
        """Cross-entropy of the source logits, in float32."""
        return F.cross_entropy(head.source.logits.float(), _labels(out))


class Transferable(SourceTerm):
    """TSA, ISDA (source covariance, no shift) and the explicit L_M, from memories or iterative moments."""

    needs_statistics = True

    def __init__(self, config: RunConfig, sizes: tuple[int, int], classes: int, dims: tuple[int, ...]) -> None:
        super().__init__()
        self.config = config
        self.isda = config.source_term == "isda"
        self.needs_target = not self.isda
        self.covariance = "source" if self.isda else config.covariance
        self.mean_shift = config.mean_shift and not self.isda

        def statistics(size: int, dim: int, spreads: bool) -> Statistics:
            if config.estimator == "iterative":
                return IterativeMoments(classes, dim)
            return FeatureMemory(size, dim, classes, second_moments=None if spreads else False)

        self.source = nn.ModuleList(statistics(sizes[0], dim, self.isda) for dim in dims)
        self.target = nn.ModuleList(
            statistics(sizes[1], dim, config.covariance == "target") for dim in dims if self.needs_target
        )

    def statistics(self, i: int) -> tuple[Statistics, Statistics | None]:
        """Source and target statistics of head i."""
        target = cast("Statistics", self.target[i]) if self.needs_target else None
        return cast("Statistics", self.source[i]), target

    def observe(self, out: Outputs) -> None:
        """Write features with labels (source) and pseudo-labels (target: the argmax of the combined prediction)."""
        for i, head in enumerate(out.heads):
            source, target = self.statistics(i)
            _take(source, head.source, _labels(out))
            if target is not None and head.target is not None and out.target is not None:
                _take(target, head.target, out.target.logits.detach().argmax(1))

    def of_head(self, i: int, head: Head, out: Outputs, generator: torch.Generator | None) -> Tensor:
        """L_∞ or L_M of one head."""
        c = self.config
        source, target = self.statistics(i)
        strength = augmentation_strength(out.progress, c.lambda0)
        if c.source_term == "sampled":
            assert target is not None
            return sampled_cross_entropy(
                head.source.features, _labels(out), head.weight, head.bias, source, target, strength, c.samples,
                generator, mean_shift=c.mean_shift, covariance=c.covariance, policy=c.policy, min_count=c.min_count,
            )  # fmt: skip
        return transferable_cross_entropy(
            head.source.logits, _labels(out), head.weight, source, target, strength, mean_shift=self.mean_shift,
            covariance=self.covariance, policy=c.policy, min_count=c.min_count,
        )  # fmt: skip

    @torch.no_grad()
    def describe(self, out: Outputs) -> dict[str, float | list[float]]:
        """λ, pseudo-label shares, classes without, ‖Δμ‖ beside the spread, shift and variance terms beside logits."""
        strength = augmentation_strength(out.progress, self.config.lambda0)
        source, target = self.statistics(0)
        said: dict[str, float | list[float]] = {"lambda": strength}
        if target is None:
            return said
        (count_s, mean_s), (count_t, mean_t) = source.class_means(), target.class_means()
        share = count_t / count_t.sum().clamp_min(1)
        both = (count_s > 0) & (count_t > 0)
        said["pseudo_label_share"] = [round(v, 4) for v in share.tolist()]
        said["classes_without_pseudo_labels"] = int((count_t == 0).sum())
        if not bool(both.any()):
            return said
        w = out.heads[0].weight.float()
        shift = (mean_t - mean_s).to(w)
        variances = target.variances_along(w)
        along = shift @ w.T
        shift_term = strength * (along - along.diagonal()[:, None])
        # The trace of a class's covariance, from the variances along the axes.
        spread = _total_variance(target).to(w)
        off = ~torch.eye(w.shape[0], dtype=torch.bool, device=w.device) & both.to(w.device)[:, None]
        said["shift_norm"] = float(shift[both].norm(dim=1).mean())
        said["class_spread"] = float(spread[both].sqrt().mean())
        if bool(off.any()):
            said["shift_term"] = float(shift_term[off].abs().mean())
            said["variance_term"] = float(0.5 * strength * variances[off].mean())
        said["logit_size"] = float(out.source.logits.float().abs().mean())
        return said


def make_source_term(config: RunConfig, sizes: tuple[int, int], classes: int, dims: tuple[int, ...]) -> SourceTerm:
    """The source term that the config names, for domains of `sizes` rows and heads of `dims` features."""
    return CrossEntropy() if config.source_term == "ce" else Transferable(config, sizes, classes, dims)


def _labels(out: Outputs) -> Tensor:
    assert out.source.labels is not None
    return out.source.labels


def _take(statistics: Statistics, view: View, labels: Tensor) -> None:
    if isinstance(statistics, FeatureMemory):
        statistics.write(view.index, view.features, labels)
    else:
        statistics.update(view.features, labels)


def _total_variance(statistics: Statistics) -> Tensor:
    """The trace of each class's covariance: (C,)."""
    if isinstance(statistics, IterativeMoments):
        return statistics.covariance.diagonal(dim1=1, dim2=2).sum(1)
    count, mean = statistics.class_means()
    squares = statistics.features.double().square().sum(1)
    total = torch.zeros_like(statistics.count, dtype=torch.float64).index_add_(0, statistics.labels, squares)[:-1]
    return (total / count.clamp_min(1) - mean.square().sum(1)).clamp_min(0)
