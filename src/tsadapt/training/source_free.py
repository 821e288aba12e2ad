"""Adapting a trained run to a new target without the source's data: what stands in for the source, and what is refused.

The second stage of SHOT (Liang et al., ICML 2020): the head stays, and the extractor learns by the target terms. With
TSA the head learns too, on the class means that the run's memory has kept:

    L_∞ = mean over classes y of −log softmax(μ_s^y → the target's class y)[y]

where μ_s^y stands for a labelled source feature, is moved by λΔμ^y and spread by λΣ_t^y as any other. μ_s is constant.

Shapes: P classes that are remembered, K features of a head, C classes.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tsadapt.config import RunConfig
from tsadapt.errors import UserError
from tsadapt.models.classifier import Classifier, HeadOutput
from tsadapt.models.networks import Architecture
from tsadapt.models.preprocessing import Preprocessing
from tsadapt.objectives.base import METHODS, SOURCE_TERMS, Method
from tsadapt.objectives.objective import requested_statistics, with_settings

__all__ = ["StandIn", "Start", "continued"]

DEFAULT = "shot"
"""The target term where none is given."""

NETWORK = (
    "network", "bottleneck", "backbone", "weights", "freeze_backbone", "train_from", "feature_precision", "image_size",
)  # fmt: skip
"""Settings that the network was made by."""


@dataclass(frozen=True)
class StandIn:
    """What is left of a source: classes, their shares (C,), and for every head the class means (P, K) of `labels` (P,).

    Without a memory P is 0.
    """

    classes: tuple[str, ...]
    share: Tensor
    means: tuple[Tensor, ...]
    labels: Tensor

    @property
    def remembered(self) -> bool:
        """Whether there are class means."""
        return len(self.labels) > 0

    def half(self, network: Classifier, device: torch.device) -> tuple[Tensor, list[HeadOutput]]:
        """The means as features of a batch, with what every head makes of them; no dropout."""
        means = [mean.to(device) for mean in self.means]
        heads = [HeadOutput(f, layer(f)) for f, layer in zip(means, network.linear_layers, strict=True)]
        return means[0], heads


@dataclass(frozen=True)
class Start:
    """A trained run to go on from: its config, its network as it was loaded, how data reach it, what stands in.

    `name` is its folder for messages, `fingerprint` is a hash of its weights and of the stand-in.
    """

    name: str
    config: RunConfig
    network: Classifier
    architecture: Architecture
    columns: tuple[str, ...] | None
    preprocessing: Preprocessing | None
    stand_in: StandIn
    fingerprint: str


def continued(config: RunConfig, start: Start) -> RunConfig:
    """The config with the network of the run it goes on from, and a target term; UserError for what needs a source."""
    _check_choices(config, start)
    theirs = start.config
    for name in NETWORK:
        given, there = getattr(config, name), getattr(theirs, name)
        own = name == "backbone" and start.preprocessing is not None and start.preprocessing.backbone.origin is not None
        if given is not None and given != there and not own:
            raise UserError(
                f"{name} is {given}, but the network of {start.name} has {there}, and stays: leave out {name}."
            )
    inherited = {name: getattr(theirs, name) for name in NETWORK}
    inherited["views"] = theirs.views if config.views == 1 else config.views
    inherited["augment"] = theirs.augment if config.augment == "auto" else config.augment
    inherited["ten_crop"] = theirs.ten_crop or config.ten_crop
    config = replace(config, source=theirs.source, target_terms=config.target_terms or (DEFAULT,), **inherited)
    if config.source_term == "ce":  # there is nothing to be right about
        config = replace(config, term_weight={**config.term_weight, "ce": 0.0})
    requested = [one for one in requested_statistics(config) if one.domain == "source"]
    if requested and not start.stand_in.remembered:
        raise UserError(
            f"{config.objective} needs the source's class means, and {start.name} has kept none: train it with --tsa"
            " --keep-memory, or leave out what needs them."
        )
    return with_settings(config)


def _check_choices(config: RunConfig, start: Start) -> None:
    """Refuse what a source-free run cannot have."""
    method, source_term = METHODS[config.method], SOURCE_TERMS[config.source_term]
    if method.terms or method.update is not Method.update:
        raise UserError(
            f"{config.method} needs the source's rows, which --source-free does not have: leave out --method (or use"
            " adabn), and choose target terms."
        )
    if config.source_term != "ce" and not source_term.needs_target:
        raise UserError(
            f"{config.source_term} needs the source's rows, which --source-free does not have: use tsa, or no source"
            " term."
        )
    for name, value in (("holdout", config.holdout), ("head_steps", config.head_steps)):
        if value:
            raise UserError(f"{name} is {value}, but a source-free run has no rows of the source: leave it out.")
    if not any(True for part in (start.network.backbone, start.network.bottleneck) for _ in part.parameters()):
        raise UserError(
            f"The network {start.architecture.network} of {start.name} is nothing but its head, which stays: there is"
            " nothing to adapt."
        )
