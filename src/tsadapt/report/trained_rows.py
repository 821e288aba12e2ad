"""The rows of a dataset that a run was trained on, found again: their names, labels and images.

A run's folder holds predictions, and no data. The data is opened where it was, and used only if it is the same.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from tsadapt.config import RunConfig
from tsadapt.data.holdout import draw_share, hold_out
from tsadapt.data.images import ImageRows, Images
from tsadapt.data.open import open_dataset
from tsadapt.data.transforms import Framing, fit_images
from tsadapt.data.types import Dataset, Domain
from tsadapt.errors import UserError
from tsadapt.models.features import cached, readable
from tsadapt.models.networks import NETWORKS
from tsadapt.runs.folder import RunFolder, read_json
from tsadapt.training.setup import source_roles, target_roles

__all__ = ["TrainedRows", "source_rows", "target_rows"]


@dataclass(frozen=True)
class TrainedRows:
    """The rows of a run's domain as they were given, in the order of its predictions, and their `numbers` there.

    `whole` is the domain before any row was left out, and `unreadable` are the names of images that were.
    """

    domain: Domain
    numbers: np.ndarray
    whole: Domain
    unreadable: tuple[str, ...]
    run: RunFolder
    role: str

    @property
    def pictures(self) -> Images | None:
        """The rows as images; None of feature vectors."""
        x = self.domain.x
        return x if isinstance(x, Images) else ImageRows(x) if isinstance(x, Tensor) and x.ndim == 4 else None

    def inputs(self) -> np.ndarray | None:
        """What went into the part of the network that was trained, as vectors (N, D).

        Feature vectors, the pixels of small images, the features of a frozen backbone if the cache still has them; None
        for images that the network read itself.
        """
        config, x = self.run.config, self.domain.x
        shape = NETWORKS[str(config.network)].takes
        if isinstance(x, Tensor) and (x.ndim == 2 or shape is not None):
            pixels = x if x.ndim == 2 or shape is None else fit_images(x, shape)
            found: np.ndarray = pixels.flatten(1).double().numpy()
            return found
        weights = self.run.manifest.get("data", {}).get("backbone")
        images = self.whole.x if isinstance(self.whole.x, Images) else ImageRows(self.whole.tensor)
        if not config.freeze_backbone or shape is not None or weights is None:
            return None
        described = read_json(self.run.model.description, ("images",))["images"]
        known = weights["weights"] if isinstance(weights, dict) else str(weights)
        features = cached(images, known, Framing(**described["framing"]), described.get("precision", "fp32"))
        if features is None:
            return None
        place = {row: i for i, row in enumerate(features.rows)}
        return features.x.numpy()[[place[row] for row in self.numbers.tolist()]]


def target_rows(run: RunFolder, rows: int, dataset: Dataset | None = None) -> TrainedRows:
    """The target rows that predictions of so many rows belong to; UserError if they cannot be found again."""
    config = run.config

    def draw(domain: Domain) -> Domain:
        by_class = config.target_draw == "oracle-stratified"
        share = config.target_share
        return domain if share >= 1 else draw_share(domain, share, config.seed, by_class)

    opened = dataset or open_dataset(config.target, _columns(run), target_roles(config))
    return _trained(run, "target", opened.train, draw, rows)


def source_rows(run: RunFolder, rows: int | None = None, dataset: Dataset | None = None) -> TrainedRows:
    """The source rows that a run was trained on: without those held out, and with their labels."""
    config = run.config

    def draw(domain: Domain) -> Domain:
        return hold_out(domain, config.holdout, config.seed)[0] if config.holdout else domain

    rows = run.manifest["data"]["source"]["rows"] if rows is None else rows
    return _trained(
        run, "source", (dataset or open_dataset(config.source, roles=source_roles(config))).train, draw, rows
    )


def _columns(run: RunFolder) -> tuple[str, ...] | None:
    columns = read_json(run.model.description, ("classes",)).get("columns") if run.model.description.is_file() else None
    return columns and tuple(columns)


def _trained(run: RunFolder, role: str, whole: Domain, draw: Any, rows: int) -> TrainedRows:
    """Rows as `training.setup` chooses them: unreadable images are left out first, or, by a trained network, last.

    The fingerprint in the manifest tells whether they are the same.
    """
    numbered = replace(whole, row_names=tuple(map(str, range(len(whole)))))
    ahead = _read_ahead(run.config, whole)
    drawn = draw(numbered)
    missing = set[int]()
    if len(drawn) != rows and isinstance(whole.x, Images):
        images = whole.x
        missing = {row for row in range(len(whole)) if not readable(images, row)}
        left = numbered.keep([row for row in range(len(whole)) if row not in missing])
        drawn = draw(left) if ahead else drawn
    before = run.manifest.get("data", {}).get(role, {}).get("train")
    if before != _fingerprint(run.config, whole, drawn, ahead):
        raise UserError(f"{whole.name} changed after training: its rows are not shown.")
    numbers = [int(name) for name in drawn.row_names or ()]
    numbers = [row for row in numbers if row not in missing]
    if len(numbers) != rows:
        raise UserError(f"{whole.name} has {len(numbers)} rows that can be read, expected {rows}: they are not shown.")
    names = tuple(whole.row_name(row) for row in sorted(missing))
    return TrainedRows(whole.keep(numbers), np.array(numbers), whole, names, run, role)


def _read_ahead(config: RunConfig, domain: Domain) -> bool:
    """Whether images were read before training: by a frozen backbone, or for a small network."""
    if domain.kind == "vector" or NETWORKS[str(config.network)].takes is not None:
        return True
    return bool(config.freeze_backbone) or config.train_from is not None


def _fingerprint(config: RunConfig, whole: Domain, drawn: Domain, ahead: bool) -> str:
    """The fingerprint that the manifest has of these rows, if nothing changed."""
    if whole.kind == "vector":
        return drawn.fingerprint()
    shape = NETWORKS[str(config.network)].takes
    if shape is not None and isinstance(whole.x, Tensor):
        return replace(drawn, x=fit_images(drawn.tensor, shape)).fingerprint()
    if ahead:
        return whole.fingerprint()
    x = drawn.x if isinstance(drawn.x, Images) else ImageRows(drawn.tensor)
    return x.fingerprint
