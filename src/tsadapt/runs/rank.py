"""Which backbone? Ranked by its features of both domains, before anything is trained; no target label is looked at.

Shapes: n_s and n_t rows of K features.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata

from tsadapt.data.in_memory import as_dataset
from tsadapt.data.transforms import Framing
from tsadapt.data.types import Domain, match_labels
from tsadapt.errors import UserError
from tsadapt.models.agreement import feature_precision
from tsadapt.models.backbones import Backbone, NoWeightsError
from tsadapt.models.encoders import find_backbone
from tsadapt.models.networks import Architecture
from tsadapt.models.preprocessing import Preprocessing, Reader
from tsadapt.selection.density import proxy_a_distance
from tsadapt.selection.logme import logme
from tsadapt.training.runtime import has_fast_bf16, pick_device

__all__ = ["Asked", "RankedBackbone", "parse_backbone", "rank_backbones", "ranked", "scored"]

MOST_ROWS = 10_000
"""Rows of each domain that are looked at."""


@dataclass(frozen=True)
class Asked:
    """A backbone to rank: its name, the side of its images and the file of its weights (None: its own)."""

    name: str
    image_size: int | None = None
    weights: str | None = None

    def __str__(self) -> str:
        return self.name if self.image_size is None else f"{self.name}@{self.image_size}"


@dataclass(frozen=True)
class RankedBackbone:
    """What is known of a backbone's features (K of them); `rank` 1 is the best by `logme`.

    `logme` is of the source's labels, `target_logme` of the target under the classes of the nearest source means, and
    `a_distance` says how well a linear classifier tells the domains apart (2: without error). `seconds` of scoring.
    """

    name: str
    features: int
    logme: float
    target_logme: float
    a_distance: float
    seconds: float
    rank: float = 0.0


def parse_backbone(text: str) -> Asked:
    """NAME, NAME@SIZE, NAME=WEIGHTS or NAME@SIZE=WEIGHTS.

    >>> parse_backbone("torchvision:mobilenet_v2@160=mobilenet.pth")
    Asked(name='torchvision:mobilenet_v2', image_size=160, weights='mobilenet.pth')
    """
    name, _, weights = text.strip().partition("=")
    name, at, size = name.partition("@")
    if not name or (at and not (size.isdecimal() and int(size) > 0)):
        raise UserError(f"--backbones has {text!r}, expected NAME, NAME@SIZE, NAME=WEIGHTS or NAME@SIZE=WEIGHTS.")
    return Asked(name, int(size) if at else None, weights or None)


def rank_backbones(
    source: Any,
    target: Any,
    backbones: Sequence[str | Asked],
    *,
    device: str = "auto",
    workers: int | None = None,
    quiet: bool = True,
) -> list[RankedBackbone]:
    """All backbones, the best first, from their features of a labelled source and an unlabelled target.

    Features are computed once and kept, as those of a frozen backbone are; then this takes seconds.
    """
    asked = [one if isinstance(one, Asked) else parse_backbone(one) for one in backbones]
    if len(asked) < 2 or len({*asked}) < len(asked):
        raise UserError("rank compares backbones: name two or more different ones, --backbones A,B.")
    labelled = as_dataset(source, name="the source").train
    unlabelled = as_dataset(target, name="the target").train
    for domain in (labelled, unlabelled):
        if domain.kind == "vector":
            raise UserError(f"{domain.name} holds feature vectors: a backbone needs images.")
    classes = labelled.classes
    if labelled.y is None or classes is None or len(set(labelled.y.tolist()) - {-1}) < 2:
        raise UserError(f"{labelled.name} needs labels of two classes at least: expected a folder for each class.")
    for one in asked:  # what is misspelt or cannot be had is said before anything is computed
        _backbone(one)
    found = []
    for one in asked:
        x_s, kept = _features(one, labelled, device, workers, quiet)
        x_t, _ = _features(one, unlabelled.unlabelled(), device, workers, quiet)
        y = match_labels(kept, classes)[0].numpy()
        found.append(scored(str(one), x_s[y >= 0], y[y >= 0], x_t))
    return ranked(found)


def scored(name: str, x_s: np.ndarray, y_s: np.ndarray, x_t: np.ndarray, seed: int = 0) -> RankedBackbone:
    """What the features of both domains say: x_s (n_s, K) with labels y_s (n_s,), x_t (n_t, K)."""
    began, rng = time.monotonic(), np.random.default_rng(seed)
    rows_s, rows_t = (np.sort(rng.permutation(len(x))[:MOST_ROWS]) for x in (x_s, x_t))
    x_s, y_s, x_t = x_s[rows_s], y_s[rows_s], x_t[rows_t]
    guess = nearest_means(x_s, y_s, x_t)
    on_target = logme(x_t, guess) if len(np.unique(guess)) > 1 else float("-inf")
    distance = proxy_a_distance(x_s, x_t, seed)
    return RankedBackbone(name, x_s.shape[1], logme(x_s, y_s), on_target, distance, time.monotonic() - began)


def nearest_means(x_s: np.ndarray, y_s: np.ndarray, x_t: np.ndarray) -> np.ndarray:
    """The class of each target row (n_t,) whose source mean has the largest cosine with it.

    >>> nearest_means(np.eye(2), np.array([4, 7]), np.array([[0.2, 1.0]]))
    array([7])
    """
    unit_s, unit_t = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in (x_s, x_t))
    classes = np.unique(y_s)
    means = np.stack([unit_s[y_s == c].mean(0) for c in classes])
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    return np.asarray(classes[(unit_t @ means.T).argmax(1)])


def ranked(found: Sequence[RankedBackbone]) -> list[RankedBackbone]:
    """The best first, by LogME of the source; ties share their rank."""
    ranks = rankdata([-one.logme for one in found])
    placed = [RankedBackbone(**{**vars(one), "rank": float(rank)}) for one, rank in zip(found, ranks, strict=True)]
    return sorted(placed, key=lambda one: (one.rank, one.name))


def _backbone(asked: Asked) -> Backbone:
    torch.manual_seed(0)  # of a backbone with random weights
    try:
        return find_backbone(asked.name, asked.weights, asked.image_size)
    except NoWeightsError as error:
        raise NoWeightsError(error.what, flag=f"{asked}=") from error


def _features(asked: Asked, domain: Domain, device: str, workers: int | None, quiet: bool) -> tuple[np.ndarray, Domain]:
    """The features of a domain's images, and the domain without those that cannot be read."""
    backbone = _backbone(asked)
    framing = Framing(backbone.size, backbone.resize, True, backbone.interpolation)
    architecture = Architecture("mlp", 0, backbone.dim)
    where = pick_device(device)
    precision = feature_precision(None, backbone, where, has_fast_bf16(where))  # as fit, which then finds them
    preprocessing = Preprocessing(backbone, framing, frozen=True, precision=precision)
    reader = Reader(architecture, preprocessing, where, workers, quiet)
    prepared = reader(domain)
    return prepared.domain.tensor.numpy(), prepared.domain
