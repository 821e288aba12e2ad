"""From a config to the two domains it trains on, the classes, and every setting filled in."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tsadapt.config import RunConfig, with_defaults
from tsadapt.data.doctor import quick_findings
from tsadapt.data.holdout import draw_share, hold_out
from tsadapt.data.image_loader import Views, workers_here
from tsadapt.data.loader import mixed
from tsadapt.data.open import open_dataset
from tsadapt.data.transforms import Framing, evaluation_transform, training_transform
from tsadapt.data.types import Dataset, Domain
from tsadapt.errors import UserError, unknown
from tsadapt.models.backbones import make_backbone
from tsadapt.models.build import Architecture, network_for
from tsadapt.models.digits import DIGIT_NETWORKS
from tsadapt.models.preprocessing import Eyes, Reader
from tsadapt.objectives.methods import METHODS
from tsadapt.training.runtime import pick_device

__all__ = ["Task", "check_choices", "make_task"]

DEFAULT_BACKBONE = "resnet50"
"""The paper's for photographs."""

# What suits each kind of network; a setting that the user gave is left alone.
DEFAULTS: dict[str, dict[str, Any]] = {
    "small-16": {"steps": 1500, "batch_size": 64, "lr": 0.02, "weight_decay": 1e-3},
    "mcd-28": {"steps": 3000, "batch_size": 64, "lr": 0.01, "weight_decay": 5e-4},
    "mcd-32": {"steps": 3000, "batch_size": 64, "lr": 0.01, "weight_decay": 5e-4},
    "lenet": {"steps": 3000, "batch_size": 64, "lr": 0.01, "weight_decay": 5e-4},
    "dtn": {"steps": 3000, "batch_size": 64, "lr": 0.01, "weight_decay": 5e-4},
    "mlp": {"steps": 1000, "batch_size": 64, "lr": 0.01, "weight_decay": 1e-3},
    "linear": {"steps": 1000, "batch_size": 64, "lr": 0.01, "weight_decay": 1e-3},
    "moons": {"steps": 500, "batch_size": 64, "lr": 0.1, "weight_decay": 1e-3},
}
UNFROZEN = {"steps": 5000, "batch_size": 32, "lr": 0.01, "weight_decay": 1e-3}
"""What suits a backbone that is trained: batch and weight decay as in TSA's code."""


@dataclass(frozen=True)
class Task:
    """Both datasets ready for the network, the source's classes, and how images are seen.

    `held` are rows of the source that training does not see.
    """

    config: RunConfig
    source: Dataset
    target: Dataset
    classes: tuple[str, ...]
    architecture: Architecture
    prior: Tensor | None
    eyes: Eyes | None = None
    held: Domain | None = None

    def views(self) -> Views | None:
        """How training looks at images; None where rows are in memory."""
        if self.eyes is None or self.eyes.frozen:
            return None
        framing, augment = self.eyes.framing, self.config.augment
        return Views(
            training_transform(framing, "center-crop" if augment == "center-crop" else "random-crop"),
            evaluation_transform(framing),
            2 * framing.resize,
            workers_here(self.config.workers, len(self.source.train) + len(self.target.train)),
        )


def make_task(config: RunConfig, tell: Callable[[str], object] = str, quiet: bool = True) -> Task:
    """Read the data and settle every setting; `tell` is called with what is worth telling the user on the way."""
    source = open_dataset(config.source)
    labelled = source.train
    target = open_dataset(config.target, labelled.columns)
    check_choices(config)
    findings = quick_findings(labelled, target.test)
    for finding in findings:
        if finding.level == "error":
            raise UserError(finding.text)
    classes = labelled.classes
    assert classes is not None
    prior = class_prior(config.class_prior, labelled, classes)
    for note in [finding.text for finding in findings if finding.level == "warning"] + notes(config, labelled, classes):
        tell(f"note: {note}")
    target = without_strange_labels(target, classes)
    config, eyes = _with_eyes(config, labelled, target.train, tell)
    network = config.network or _network(config, labelled, target.train, eyes)
    if (network in DIGIT_NETWORKS) != (labelled.kind != "vector" and eyes is None):
        taken = "feature vectors" if labelled.kind == "vector" else "features of a backbone" if eyes else "images"
        raise UserError(f"The network {network!r} does not take {taken}.")
    config = with_defaults(replace(config, network=network), **_defaults(network, eyes))
    config = with_defaults(config, target_batch_size=config.batch_size)
    if min(config.batch_size or 0, config.target_batch_size or 0) < 2:
        raise UserError("A batch of one row cannot be normalised: expected a batch size of at least 2.")
    inputs = eyes.backbone.dim if eyes is not None else _width(labelled)
    architecture = Architecture(network, len(classes), inputs, config.bottleneck, METHODS[config.method].heads)
    ready = Reader(architecture, eyes, pick_device(config.device), config.workers, quiet)
    source, target = (_ready(dataset, ready, tell) for dataset in (source, target))
    if config.target_share < 1:
        by_class = config.target_draw == "oracle-stratified"
        target = Dataset(draw_share(target.train, config.target_share, config.seed, by_class), target.test)
    held = None
    if config.holdout:
        train, held = hold_out(source.train, config.holdout, config.seed)
        source = Dataset(train, held if source.test is source.train else source.test)
    return Task(config, source, target, classes, architecture, prior, eyes, held)


def _ready(dataset: Dataset, reader: Reader, tell: Callable[[str], object]) -> Dataset:
    """Both parts of a dataset made ready; once where they are the same."""
    done = {}
    for domain in (dataset.train, dataset.test):
        if id(domain) not in done:
            ready = reader(domain)
            for row, why in ready.unreadable.items():
                tell(f"note: {domain.name}: {domain.row_name(row)} is left out, it cannot be read: {why}")
            done[id(domain)] = ready.domain
    return Dataset(done[id(dataset.train)], done[id(dataset.test)])


def _with_eyes(
    config: RunConfig, source: Domain, target: Domain, tell: Callable[[str], object]
) -> tuple[RunConfig, Eyes | None]:
    """The backbone for photographs, and whether it is frozen; none for vectors, and for digit networks."""
    given = [k for k in ("backbone", "weights", "freeze_backbone", "image_size") if getattr(config, k) is not None]
    if source.kind == "vector" or config.network in DIGIT_NETWORKS:
        if given:
            other = "feature vectors" if source.kind == "vector" else f"the network {config.network}"
            raise UserError(f"{given[0]} is for photographs through a backbone, but here are {other}.")
        return config, None
    if config.backbone is None and not given and "file" not in (source.kind, target.kind):
        return config, None  # small images in memory: a digit network
    if config.backbone is None:
        tell(f"note: no --backbone given: {DEFAULT_BACKBONE} of timm.")
    name = config.backbone or DEFAULT_BACKBONE
    config = replace(config, backbone=name)
    if config.freeze_backbone is None:
        frozen = pick_device(config.device).type == "cpu"
        config = replace(config, freeze_backbone=frozen)
        if frozen:
            tell(
                "note: the backbone is frozen, which is the default on a CPU: its features are computed once."
                " --no-freeze-backbone trains it too, which takes far longer."
            )
    frozen = bool(config.freeze_backbone)
    if frozen and (config.ten_crop or config.augment != "auto"):
        raise UserError("Crops at random and ten crops are for a backbone that is trained: add --no-freeze-backbone.")
    if not frozen and config.augment == "auto":
        visda = config.source.startswith("visda:")
        config = replace(config, augment="center-crop" if visda else "random-crop")
    torch.manual_seed(mixed(config.seed, 7))  # of a backbone that starts at random
    backbone = make_backbone(name, config.weights, config.image_size)
    # The protocol of Office-31, Office-Home and VisDA-2017 resizes both sides to 256, for 224.
    framing = (
        Framing(backbone.size, backbone.resize, True, backbone.interpolation)
        if frozen
        else Framing(backbone.size, round(backbone.size * 256 / 224), False, "bilinear")
    )
    return config, Eyes(backbone, framing, frozen, config.ten_crop)


def _network(config: RunConfig, source: Domain, target: Domain, eyes: Eyes | None) -> str:
    """The network that suits the data."""
    if eyes is not None or source.kind == "vector":
        return "mlp"
    return network_for(config.source, config.target, (tuple(source.tensor.shape[1:]), tuple(target.tensor.shape[1:])))


def _defaults(network: str, eyes: Eyes | None) -> dict[str, Any]:
    return UNFROZEN if eyes is not None and not eyes.frozen else DEFAULTS[network]


def _width(domain: Domain) -> int:
    return domain.tensor[0].numel() if isinstance(domain.x, Tensor) else 0


def check_choices(config: RunConfig) -> None:
    """Everything that is known by name is there, before a folder is made for the run."""
    method = METHODS[config.method]
    pick_device(config.device)
    if config.network is not None and config.network not in DEFAULTS:
        raise UserError(unknown("network", config.network, DEFAULTS))
    terms = (config.source_term, *(["mi"] if config.mi else []), *method.terms)
    for name in config.term_weights():
        if name not in terms:
            raise UserError(f"Unknown term {name!r}: with method {config.method} there are {', '.join(terms)}.")
    if not any(config.term_weights().get(name, 1.0) for name in terms):
        raise UserError("term_weight turns every term off: there is nothing left to minimise.")
    if config.source_term == "isda" and (not config.mean_shift or config.covariance != "target"):
        raise UserError("ISDA has no mean shift and no target covariance to leave out: the ablations are TSA's.")


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


def without_strange_labels(target: Dataset, classes: tuple[str, ...]) -> Dataset:
    """The target; without its labels if the source knows none of their classes: its folders are no classes then."""
    known = {name for domain in (target.train, target.test) for name in domain.classes or classes} & set(classes)
    if known:
        return target
    train = target.train.unlabelled()
    return Dataset(train, train if target.test is target.train else target.test.unlabelled())


def notes(config: RunConfig, source: Domain, classes: tuple[str, ...]) -> list[str]:
    """What a user should know of her settings before she waits for a result."""
    found, default = [], RunConfig("", "")
    if config.source_term == "ce" and config.lambda0 != default.lambda0:
        found.append(f"lambda0 is {config.lambda0}, but nothing uses it without --tsa or another source term.")
    if not config.mi and config.beta != default.beta:
        found.append(f"beta is {config.beta}, but nothing uses it without --tsa or --mi.")
    assert source.y is not None
    if config.mi and config.class_prior == "uniform":
        share = torch.bincount(source.y, minlength=len(classes)).double()
        if uneven(share / share.sum()):
            found.append(
                "The source's classes are far from equally frequent. If the target's are too, mind that mutual"
                " information favours equal shares: --class-prior source, or a file with the shares, tells it better."
            )
    return found


def uneven(share: Tensor) -> bool:
    """Whether class shares are far from equal: an entropy below 90 % of the most it can be."""
    entropy = -(share * share.clamp_min(1e-12).log()).sum()
    return bool(entropy < 0.9 * torch.log(torch.tensor(float(len(share)))))
