"""The few target rows whose labels are given: to measure with, or, if a run says so, to train on.

Shapes: n rows of the target that training sees, N rows of the target as it was read.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tsadapt.config import RunConfig
from tsadapt.data.target_labels import read_target_labels
from tsadapt.data.types import Dataset, Domain
from tsadapt.errors import UserError

__all__ = ["KnownLabels", "known_labels"]


@dataclass(frozen=True)
class KnownLabels:
    """The labels of target rows (n,) as indices into the source's classes, −1 for all others; `used` to train on."""

    labels: Tensor
    used: bool

    @property
    def rows(self) -> np.ndarray:
        """The rows that have one."""
        found: np.ndarray = np.flatnonzero(self.labels.numpy() >= 0)
        return found

    def fingerprint(self) -> str:
        """A hash of the rows and their labels."""
        return hashlib.sha256(self.labels.numpy().tobytes()).hexdigest()[:16]

    def following(self, before: Domain, after: Domain) -> "KnownLabels":
        """The same for the rows of `before` that are still in `after`: images that cannot be read are not."""
        if len(before) == len(after):
            return self
        place = {before.row_name(row): row for row in range(len(before))}
        kept = [place[after.row_name(row)] for row in range(len(after))]
        found = KnownLabels(self.labels[kept], self.used)
        if not len(found.rows):
            raise UserError(f"No row of {before.name} that has a label in --target-labels can be read.")
        return found


def known_labels(
    config: RunConfig, target: Dataset, classes: tuple[str, ...], given: np.ndarray | None
) -> KnownLabels | None:
    """What a run knows of its target's labels: `given` (N,), or those of the config's file; None if nothing."""
    if config.use_target_labels and config.target_labels is None:
        raise UserError("--use-target-labels needs them: add --target-labels FILE, a CSV with lines name,label.")
    if config.target_labels is None:
        return None
    if config.target_share < 1:
        raise UserError("--target-labels names rows of the whole target: leave out --target-share.")
    labels = read_target_labels(config.target_labels, target.train, classes) if given is None else given
    return KnownLabels(torch.from_numpy(labels), config.use_target_labels)
