"""What target terms have in common: one prediction a row, whatever the heads, and the rows of the shared memory.

Shapes: n target rows, B of them in a batch, K features, C classes, k neighbours.
"""

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core import FeatureMemory, PredictionMemory, nearest_rows
from tsadapt.objectives.base import Context, Outputs

__all__ = ["averaged_logits", "few_rows", "label_anew", "neighbour_predictions", "remembered_features"]


def averaged_logits(out: Outputs) -> Tensor:
    """Logits of the target (B, C) whose softmax is the average of the heads' probabilities."""
    _, target = out.both()
    if len(out.heads) == 1:
        return target.logits
    log_p = torch.stack([head.target.logits.log_softmax(1) for head in out.heads if head.target is not None])
    return log_p.logsumexp(0) - math.log(len(log_p))


def few_rows(context: Context) -> bool:
    """Whether a target batch has fewer rows than twice the classes: most are missing whatever the network predicts."""
    return 2 * len(context.classes) > context.batch_sizes[1]


def remembered_features(out: Outputs) -> tuple[Tensor, Tensor]:
    """The features of every target row in the shared memory (n, K), and whether they were written (n,).

    Of several processes, the features are those of this one's block of the rows. Of several heads the unit features
    stand side by side: the cosine of two rows is the average over the heads.
    """
    memories = [cast("FeatureMemory", out.statistics("target", "memory", i)) for i in range(len(out.heads))]
    written = torch.stack([memory.labels < memory.classes for memory in memories]).all(0)
    return _side_by_side([memory.features for memory in memories]), written


def neighbour_predictions(out: Outputs, memory: PredictionMemory, k: int) -> tuple[Tensor, Tensor]:
    """What `memory` has of the k rows nearest to each row of the batch (B, k, C), and which of them there are (B, k).

    A row is no neighbour of itself, and neither is one without a feature or a prediction yet.
    """
    _, target = out.both()
    features = [head.target.features for head in out.heads if head.target is not None]
    rows, written = remembered_features(out)
    eligible = written & memory.written.to(written.device)
    before = out.found.get(("nearest rows", k))
    if before is None or not _same(before[0], [*features, eligible]):  # terms that ask for the same rows search once
        batch = _side_by_side([f.detach() for f in features])
        near = nearest_rows(batch, rows, k, target.index, eligible, memory.processes)
        before = out.found["nearest rows", k] = [*features, eligible], near
    place, found = before[1]
    return memory.rows(place), found


def _same(some: list[Tensor], others: list[Tensor]) -> bool:
    """Whether these are the same features, and as many rows are eligible."""
    (*a, eligible), (*b, others_eligible) = some, others
    same = len(a) == len(b) and all(one is other for one, other in zip(a, b, strict=True))
    return same and torch.equal(eligible, others_eligible)


Estimate = Callable[..., Tensor]
"""From features (n, K) and predictions (n, C) of rows to labels (n,); `processes` says who has other rows."""


def label_anew(out: Outputs, memory: PredictionMemory, labels: Tensor, estimate: Estimate) -> None:
    """Label every target row that has a feature and a prediction, in place: `labels` (n,)."""
    features, written = remembered_features(out)
    seen = (written.to(labels.device) & memory.written.to(labels.device)).nonzero()[:, 0]
    if not len(seen):
        return
    start, stop = memory.block.start, memory.block.stop
    mine = seen[(seen >= start) & (seen < stop)] - start
    p = memory.predictions[mine.to(memory.predictions.device)].float().to(features.device)
    found = estimate(features[mine.to(features.device)], p, processes=memory.processes).to(labels.device)
    own = labels[start:stop].index_copy(0, mine, found)
    labels.copy_(own if memory.processes is None else memory.processes.gather_rows(own, len(labels)))


def _side_by_side(features: list[Tensor]) -> Tensor:
    return features[0] if len(features) == 1 else torch.cat([F.normalize(f.float(), dim=1) for f in features], 1)
