"""From a config to the two domains it trains on, the classes, and every setting filled in."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tsadapt.config import RunConfig, with_defaults
from tsadapt.data.open import open_dataset
from tsadapt.data.transforms import ImageShape, fit_images
from tsadapt.data.types import Dataset, Domain, match_labels
from tsadapt.engine.runtime import pick_device
from tsadapt.errors import UserError, unknown
from tsadapt.methods import METHODS
from tsadapt.models.build import Architecture, network_for
from tsadapt.models.digits import DIGIT_NETWORKS

__all__ = ["Task", "image_shape", "make_ready", "make_task"]

# What suits each kind of network; a setting that the user gave is left alone.
DEFAULTS: dict[str, dict[str, Any]] = {
    "small-16": {"steps": 1500, "batch_size": 64, "lr": 0.02, "weight_decay": 1e-3},
    "mcd-28": {"steps": 3000, "batch_size": 64, "lr": 0.01, "weight_decay": 5e-4},
    "mcd-32": {"steps": 3000, "batch_size": 64, "lr": 0.01, "weight_decay": 5e-4},
    "lenet": {"steps": 3000, "batch_size": 64, "lr": 0.01, "weight_decay": 5e-4},
    "dtn": {"steps": 3000, "batch_size": 64, "lr": 0.01, "weight_decay": 5e-4},
    "mlp": {"steps": 1000, "batch_size": 64, "lr": 0.01, "weight_decay": 1e-3},
    "linear": {"steps": 1000, "batch_size": 64, "lr": 0.01, "weight_decay": 1e-3},
}


@dataclass(frozen=True)
class Task:
    """Both datasets ready for the network, the source's classes, and what is worth telling the user."""

    config: RunConfig
    source: Dataset
    target: Dataset
    classes: tuple[str, ...]
    architecture: Architecture
    prior: Tensor | None
    notes: tuple[str, ...]


def make_task(config: RunConfig) -> Task:
    """Read the data and settle every setting."""
    source = open_dataset(config.source)
    labelled = source.train
    target = open_dataset(config.target, labelled.columns)
    _check_choices(config)
    if labelled.y is None or labelled.classes is None:
        raise UserError(f"The source {config.source} has no labels: the source must be the labelled domain.")
    if labelled.kind != target.train.kind:
        kinds = f"{labelled.kind}s and the target {target.train.kind}s"
        raise UserError(f"The source holds {kinds}: expected the same kind of data on both sides.")
    if labelled.kind == "vector" and labelled.x.shape[1] != target.train.x.shape[1]:
        raise UserError(
            f"The source has {labelled.x.shape[1]} features a row and the target {target.train.x.shape[1]}: expected"
            " the same features, in the same order."
        )
    classes = labelled.classes
    if len(classes) < 2:
        raise UserError(f"The source {config.source} has the single class {classes[0]!r}: expected at least two.")
    shapes = (tuple(labelled.x.shape[1:]), tuple(target.train.x.shape[1:]))
    network = config.network or network_for(config.source, config.target, labelled.kind, shapes)
    if network not in DEFAULTS:
        raise UserError(unknown("network", network, DEFAULTS))
    if (network in DIGIT_NETWORKS) != (labelled.kind == "image"):
        raise UserError(f"The network {network!r} does not take {labelled.kind}s.")
    config = with_defaults(replace(config, network=network), **DEFAULTS[network])
    config = with_defaults(config, target_batch_size=config.batch_size)
    if min(config.batch_size or 0, config.target_batch_size or 0) < 2:
        raise UserError("A batch of one row cannot be normalised: expected a batch size of at least 2.")
    architecture = Architecture(network, len(classes), labelled.x[0].numel(), config.bottleneck)
    source = Dataset(*(make_ready(domain, architecture) for domain in (source.train, source.test)))
    target = Dataset(*(make_ready(domain, architecture) for domain in (target.train, target.test)))
    prior = class_prior(config.class_prior, labelled, classes)
    return Task(
        config, source, target, classes, architecture, prior, tuple(_notes(config, labelled, target.test, classes))
    )


def _check_choices(config: RunConfig) -> None:
    """Everything that is known by name is there, before a folder is made for the run."""
    METHODS[config.method]
    pick_device(config.device)
    if config.source_term == "isda" and (not config.mean_shift or config.covariance != "target"):
        raise UserError("ISDA has no mean shift and no target covariance to leave out: the ablations are TSA's.")


def make_ready(domain: Domain, architecture: Architecture) -> Domain:
    """The domain in the shape that the network takes."""
    shape = image_shape(architecture)
    if shape is not None:
        if domain.kind != "image":
            raise UserError(f"{domain.name} holds feature vectors, but this model was trained on images.")
        return replace(domain, x=fit_images(domain.x, shape))
    if domain.kind != "vector":
        raise UserError(f"{domain.name} holds images, but this model was trained on feature vectors.")
    if domain.x.shape[1] != architecture.inputs:
        raise UserError(f"{domain.name} has {domain.x.shape[1]} features a row, expected {architecture.inputs}.")
    return domain


def image_shape(architecture: Architecture) -> ImageShape | None:
    """The images a network takes; None for one that takes vectors."""
    network = DIGIT_NETWORKS.get(architecture.network)
    return None if network is None else ImageShape(network.channels, network.size, network.crop)


def class_prior(name: str, source: Domain, classes: tuple[str, ...]) -> Tensor | None:
    """The class shares that MI aims for: None for uniform, the source's, or those in a JSON file {class: share}."""
    if name == "uniform":
        return None
    if name == "source":
        assert source.y is not None
        share = torch.bincount(source.y, minlength=len(classes)).double()
    else:
        path = Path(name)
        if not path.is_file():
            raise UserError(f"class_prior is {name!r}, expected 'uniform', 'source' or a JSON file {{class: share}}.")
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            share = torch.tensor([float(table[c]) for c in classes], dtype=torch.float64)
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path}: expected a share for each of the classes {', '.join(classes)}: {error}."
            ) from error
    if not bool((share > 0).all() and share.isfinite().all()):
        raise UserError(f"class_prior {name!r} has shares that are not positive numbers: every class needs one.")
    return (share / share.sum()).float()


def _notes(config: RunConfig, source: Domain, target: Domain, classes: tuple[str, ...]) -> list[str]:
    notes = []
    if target.y is not None:
        _, strange = match_labels(target, classes)
        if strange:
            names = ", ".join(strange)
            notes.append(f"The target has classes the source does not: {names}. Their rows count as errors.")
    assert source.y is not None
    if config.mi and config.class_prior == "uniform":
        share = torch.bincount(source.y, minlength=len(classes)).double()
        if uneven(share / share.sum()):
            notes.append(
                "The source's classes are far from equally frequent. If the target's are too, mind that mutual"
                " information favours equal shares: --class-prior source, or a file with the shares, tells it better."
            )
    return notes


def uneven(share: Tensor) -> bool:
    """Whether class shares are far from equal: an entropy below 90 % of the most it can be."""
    entropy = -(share * share.clamp_min(1e-12).log()).sum()
    return bool(entropy < 0.9 * torch.log(torch.tensor(float(len(share)))))
