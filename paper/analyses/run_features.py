"""Features of a finished run, on the rows that judge it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paper.protocols import our_encoder
from tsadapt.data.types import match_labels
from tsadapt.errors import UserError
from tsadapt.runs.folder import RunFolder
from tsadapt.runs.model import load
from tsadapt.training.setup import make_task

__all__ = ["RunFeatures", "features_of_run"]


@dataclass(frozen=True)
class RunFeatures:
    """Features (N, K) and labels (N,) of some rows of both domains, in evaluation mode; −1 is a class unknown."""

    f_s: np.ndarray
    y_s: np.ndarray
    f_t: np.ndarray
    y_t: np.ndarray


def features_of_run(run: Path, most: int, seed: int = 0) -> RunFeatures:
    """At most `most` rows of each domain's test split, drawn at random; the target's labels make this an oracle."""
    config = RunFolder(run).config
    model = load(run, device="cpu", backbone=our_encoder(config))
    task = make_task(config)
    rng, found = np.random.default_rng(seed), []
    for domain in (task.source.test, task.target.test):
        if domain.y is None:
            raise UserError(f"{domain.name} has no labels to judge by.")
        rows = sorted(rng.permutation(len(domain))[:most].tolist())
        some = domain.keep(rows)
        predicted = model.forward(some)
        some = some.keep(predicted.rows) if predicted.unreadable else some
        found += [predicted.features, match_labels(some, model.classes)[0].numpy()]
    return RunFeatures(*found)
