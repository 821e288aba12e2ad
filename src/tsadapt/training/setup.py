"""A config becomes a task: data opened and checked, backbone and network chosen, every setting filled in."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tsadapt.config import RunConfig, with_defaults
from tsadapt.core.processes import Processes
from tsadapt.data.doctor import quick_findings
from tsadapt.data.holdout import draw_share, hold_out
from tsadapt.data.image_loader import Views, workers_here
from tsadapt.data.loader import mixed
from tsadapt.data.open import canonical_name, open_dataset
from tsadapt.data.paths import absolute_path
from tsadapt.data.target_labels import IN_MEMORY
from tsadapt.data.transforms import Augment, Framing, evaluation_transform, strong_transform, training_transform
from tsadapt.data.types import Dataset, Domain, Roles
from tsadapt.errors import UserError
from tsadapt.models.activations import Looks
from tsadapt.models.agreement import feature_precision
from tsadapt.models.encoders import find_backbone, one_path
from tsadapt.models.networks import (
    NETWORKS,
    STAGE_LENGTH,
    TRAINED_BACKBONE,
    TRAINED_LENGTH,
    Architecture,
    Length,
    build,
    network_for,
)
from tsadapt.models.normalisation import normalisations
from tsadapt.models.preprocessing import Preprocessing, Reader
from tsadapt.models.stages import Stem, find_stage
from tsadapt.objectives.base import METHODS
from tsadapt.objectives.objective import adapts, check_objective, term_classes, with_settings
from tsadapt.training.compiled import check_compiler
from tsadapt.training.known_labels import KnownLabels, known_labels
from tsadapt.training.runtime import has_fast_bf16, pick_device
from tsadapt.training.source_free import Start, continued
from tsadapt.training.trainer import Trainer

__all__ = [
    "Task",
    "check_choices",
    "check_normalised",
    "check_processes",
    "make_task",
    "make_trainer",
    "one_spelling",
    "reading_config",
    "source_roles",
    "target_roles",
    "with_length",
]

DEFAULT_BACKBONE = "resnet50"
"""The paper's for photographs."""

MOST_ROWS, MOST_PASSES = 10_000, 1_000
"""A batch may have this many rows, or this many passes over its domain: more is a slip, and would take for ever."""

Tell = Callable[[str], object]


@dataclass(frozen=True)
class Task:
    """Both datasets prepared for the network, the source's classes, and how photographs reach it.

    `held` are rows of the source that training does not see. A task that goes on from a trained run, its `start`, has
    no source (None). `known` are labels of a few target rows, which measure unless the config has them trained on.
    """

    config: RunConfig
    labelled: Dataset | None
    target: Dataset
    classes: tuple[str, ...]
    architecture: Architecture
    preprocessing: Preprocessing | None = None
    held: Domain | None = None
    start: Start | None = None
    known: KnownLabels | None = None

    @property
    def source(self) -> Dataset:
        """The labelled domain."""
        if self.labelled is None:
            raise ValueError("a task that goes on from a trained run has no source")
        return self.labelled

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of a table's features."""
        return self.source.train.columns if self.start is None else self.start.columns

    def views(self) -> Views | None:
        """How training reads images; None where rows are in memory, or stored."""
        if self.preprocessing is None or self.preprocessing.frozen or self.config.train_from is not None:
            return None
        framing = self.preprocessing.framing
        augment: Augment = "center-crop" if self.config.augment == "center-crop" else "random-crop"
        return Views(
            training_transform(framing, augment),
            evaluation_transform(framing),
            2 * framing.resize,
            workers_here(
                self.config.workers, len(self.target.train) + len(self.labelled.train if self.labelled else ())
            ),
            strong_transform(framing, augment) if _of_two_views(self.config) else None,
        )


def one_spelling(config: RunConfig) -> RunConfig:
    """The config with absolute paths: relative and absolute spellings of the same files are one run."""
    weights, source_free, labels = config.weights, config.source_free, config.target_labels
    if source_free is not None:
        source_free = str(absolute_path(source_free))
    if labels is not None and not labels.startswith(IN_MEMORY):
        labels = str(absolute_path(labels))
    if weights not in (None, "none"):
        weights = str(absolute_path(str(weights)))
    backbone = config.backbone and one_path(config.backbone)
    source, target = canonical_name(config.source), canonical_name(config.target)
    return with_settings(
        config, source=source, target=target, weights=weights, backbone=backbone, source_free=source_free,
        target_labels=labels,
    )  # fmt: skip


def make_task(
    config: RunConfig,
    tell: Tell = str,
    quiet: bool = True,
    data: tuple[Dataset | None, Dataset] | None = None,
    encoder: nn.Module | None = None,
    start: Start | None = None,
    target_labels: np.ndarray | None = None,
) -> Task:
    """Read the data and settle every setting; `tell` hears what is worth telling the user on the way.

    `data` are the two datasets where they are in memory already (of a source-free run, the target alone), `encoder` is
    the backbone where that is, `start` is the trained run that a source-free one goes on from. `target_labels` are
    those of the target's rows where they are in memory, −1 for none.
    """
    config = with_settings(config)
    check_choices(config)
    if start is not None:
        return _task_from(start, continued(config, start), tell, quiet, data, target_labels)
    if config.source_free is not None:
        raise UserError(f"This run went on from {config.source_free} without the source, whose rows are needed here.")
    source, target = _open(config) if data is None or data[0] is None else (data[0], data[1])
    classes = _check_data(source, target, tell)
    for name, cls in term_classes(config).items():
        cls.check_classes(config.settings.get(name, {}), classes)
    target = _without_foreign_labels(target, classes)
    known, as_read = known_labels(config, target, classes, target_labels), target.train
    config, preprocessing = _choose_backbone(config, source.train, target.train, tell, encoder)
    config = _choose_network(config, source.train, target.train, preprocessing)
    config = with_defaults(config, separate_bn=METHODS[config.method].separate_bn, precision="fp32")
    inputs = preprocessing.backbone.dim if preprocessing is not None else _width(source.train)
    heads = METHODS[config.method].heads
    architecture = Architecture(str(config.network), len(classes), inputs, config.bottleneck, heads)
    trained = preprocessing is not None and not preprocessing.frozen
    check_normalised(
        config, architecture, target.train, preprocessing.backbone.module if trained and preprocessing else None
    )
    stored = None if config.train_from is None else _stored(config, architecture, preprocessing)
    reader = Reader(architecture, preprocessing, pick_device(config.device), config.workers, quiet, stored)
    source, target = (_prepare(dataset, reader, tell) for dataset in (source, target))
    target = _draw_target(config, target)
    source, held = _hold_out(config, source)
    length = STAGE_LENGTH if config.train_from is not None else TRAINED_LENGTH if trained else None
    config = with_length(config, source.train, target.train, len(classes), length)
    known = None if known is None else known.following(as_read, target.train)
    return Task(config, source, target, classes, architecture, preprocessing, held, known=known)


def _task_from(
    start: Start, config: RunConfig, tell: Tell, quiet: bool, data: tuple[Dataset | None, Dataset] | None,
    target_labels: np.ndarray | None,
) -> Task:  # fmt: skip
    """A task without a source, on the network of a trained run."""
    target = open_dataset(config.target, start.columns, target_roles(config)) if data is None else data[1]
    for note in (*target.train.notes, *target.train.recognised):
        tell(f"note: {note}")
    classes, architecture, preprocessing = start.stand_in.classes, start.architecture, start.preprocessing
    for name, cls in term_classes(config).items():
        cls.check_classes(config.settings.get(name, {}), classes)
    target = _without_foreign_labels(target, classes)
    known, as_read = known_labels(config, target, classes, target_labels), target.train
    if preprocessing is not None:
        preprocessing = replace(preprocessing, ten_crop=config.ten_crop)
    trained = preprocessing is not None and not preprocessing.frozen
    _check_stage(config)
    if preprocessing is not None:
        _check_crops(config, preprocessing.frozen)
    if config.train_from is not None and has_fast_bf16(pick_device(config.device)):
        config = with_defaults(config, precision="bf16")
    config = _with_batches(config, NETWORKS[architecture.network].defaults if not trained else TRAINED_BACKBONE)
    config = with_defaults(config, precision="fp32", separate_bn=METHODS[config.method].separate_bn)
    _check_batch(config.target_batch_size or 0, target.train)
    check_normalised(
        config, architecture, target.train, preprocessing.backbone.module if trained and preprocessing else None
    )
    stored = None if config.train_from is None else _looks(config, start.network.scaling)
    target = _prepare(
        target, Reader(architecture, preprocessing, pick_device(config.device), config.workers, quiet, stored), tell
    )
    target = _draw_target(config, target)
    length = STAGE_LENGTH if config.train_from is not None else TRAINED_LENGTH if trained else None
    config = with_length(config, target.train, target.train, len(classes), length)
    known = None if known is None else known.following(as_read, target.train)
    return Task(config, None, target, classes, architecture, preprocessing, None, start, known)


def make_trainer(task: Task, processes: Processes | None = None) -> Trainer:
    """The trainer of a task, before its first step; with `processes`, this one's."""
    check_processes(task.config, processes)
    config, preprocessing = task.config, task.preprocessing
    known = None if task.known is None or not task.known.used else task.known.labels
    torch.manual_seed(mixed(config.seed, 2))
    if task.start is not None:
        network, stand_in = deepcopy(task.start.network), task.start.stand_in
        return Trainer(
            config, network, stand_in, task.target.train.unlabelled(), task.views(), processes=processes,
            known_labels=known,
        )  # fmt: skip
    source = task.source.train
    backbone = preprocessing.backbone if preprocessing is not None and not preprocessing.frozen else None
    model = build(task.architecture, source.tensor if source.kind == "vector" else None, backbone)
    return Trainer(
        config, model, source, task.target.train.unlabelled(), task.views(), processes=processes, known_labels=known
    )


def check_processes(config: RunConfig, processes: Processes | None) -> None:
    """Refuse batches that are too small to give every process a row of each domain, and labelled target rows."""
    least = min(config.batch_size or 1, config.target_batch_size or 1)
    if processes is not None and least < processes.number:
        raise UserError(
            f"A batch of {least} rows cannot be shared by {processes.number} processes: expected one row or more for"
            " each. Raise --batch-size, or start fewer processes."
        )
    if processes is not None and config.use_target_labels:
        raise UserError("--use-target-labels is for one process: train without torchrun, or leave it out.")


def check_choices(config: RunConfig) -> None:
    """Everything that has a name is known, before a folder is made for the run."""
    check_objective(config)
    device = pick_device(config.device)
    if config.compile:
        check_compiler(device)
    if config.network is not None:
        _ = NETWORKS[config.network]


def check_normalised(
    config: RunConfig, architecture: Architecture, target: Domain, backbone: nn.Module | None = None
) -> None:
    """Refuse a method that normalises the network by the target where there is nothing to normalise, or too little.

    `backbone` is one that is trained with the network.
    """
    if not METHODS[config.method].target_statistics:
        return
    if len(target) < 2:
        raise UserError(f"{target.name} has one row: {config.method} takes its statistics, and needs at least 2.")
    with torch.device("meta"):  # its layers, without memory and without drawing weights
        layers = normalisations(build(architecture))
    if backbone is not None:
        layers += normalisations(backbone)
    if not layers:
        other = "mlp (an estimator's bottleneck)" if NETWORKS[architecture.network].takes is None else "mcd-28"
        raise UserError(
            f"{config.method} replaces the statistics of batch normalisation, but the network {architecture.network}"
            f" has none: use {other}."
        )


def reading_config(settings: Mapping[str, Any]) -> RunConfig:
    """A config with nothing but how tables are read: what is known before the data is open."""
    return RunConfig("", "", id_column=settings.get("id_column"), label_column=settings.get("label_column"))


def source_roles(config: RunConfig) -> Roles:
    """The columns of the source that are no features; it needs labels, and no names for its rows."""
    return Roles(config.id_column, config.label_column, needed=("label",))


def target_roles(config: RunConfig) -> Roles:
    """The columns of the target that are no features; it needs names, where they were asked for, and no labels."""
    return Roles(config.id_column, config.label_column, needed=("id",))


def _open(config: RunConfig) -> tuple[Dataset, Dataset]:
    source = open_dataset(config.source, roles=source_roles(config))
    return source, open_dataset(config.target, source.train.columns, target_roles(config))


def _check_data(source: Dataset, target: Dataset, tell: Tell) -> tuple[str, ...]:
    """Stop at what cannot be trained on, and warn of what looks wrong; the classes of the source."""
    findings = quick_findings(source.train, target.test)
    for finding in findings:
        if finding.level == "error":
            raise UserError(finding.text)
    for finding in findings:
        if finding.level == "warning" or finding.code == "recognised":
            tell(f"note: {finding.text}")
    assert source.train.classes is not None
    return source.train.classes


def _without_foreign_labels(target: Dataset, classes: tuple[str, ...]) -> Dataset:
    """The target; without its labels if the source knows none of their classes: its folders are no classes then."""
    known = {name for domain in (target.train, target.test) for name in domain.classes or classes} & set(classes)
    if known:
        return target
    train = target.train.unlabelled()
    return Dataset(train, train if target.test is target.train else target.test.unlabelled())


def _choose_backbone(
    config: RunConfig, source: Domain, target: Domain, tell: Tell, encoder: nn.Module | None
) -> tuple[RunConfig, Preprocessing | None]:
    """The backbone for photographs, and whether it is frozen; none for vectors, and for digit networks."""
    of_backbone = ("backbone", "weights", "freeze_backbone", "train_from", "feature_precision", "image_size")
    given = [k for k in of_backbone if getattr(config, k) is not None]
    _check_stage(config)
    takes_images = config.network is not None and NETWORKS[config.network].takes is not None
    if source.kind == "vector" or takes_images:
        if given:
            other = "these are feature vectors" if source.kind == "vector" else f"the network {config.network} has none"
            raise UserError(f"{given[0]} is for photographs through a backbone, but {other}.")
        return config, None
    if config.backbone is None and not given and "file" not in (source.kind, target.kind):
        return config, None  # small images in memory: a digit network
    if config.backbone is None:
        tell(f"note: no --backbone given, using timm's {DEFAULT_BACKBONE}.")
    config = replace(config, backbone=config.backbone or DEFAULT_BACKBONE)
    if config.freeze_backbone is None and config.train_from is None:
        frozen = pick_device(config.device).type == "cpu"
        config = replace(config, freeze_backbone=frozen)
        if frozen:
            tell(
                "note: the backbone is frozen, the default on a CPU: its features are computed once."
                " --train-from -1 trains its last stage too, --no-freeze-backbone all of it, which takes far longer."
            )
    frozen = bool(config.freeze_backbone)
    _check_crops(config, frozen)
    if config.feature_precision is not None and not frozen:
        raise UserError(
            f"feature_precision is {config.feature_precision}, but only a frozen backbone computes features ahead of"
            " training: add --freeze-backbone, or leave it out (the precision of training is --precision)."
        )
    if config.augment == "auto" and (config.views > 1 if config.train_from is not None else not frozen):
        visda = config.source.startswith("visda:")
        config = replace(config, augment="center-crop" if visda else "random-crop")
    torch.manual_seed(mixed(config.seed, 7))  # of a backbone that starts at random
    backbone = find_backbone(str(config.backbone) if encoder is None else encoder, config.weights, config.image_size)
    # The protocol of Office-31, Office-Home and VisDA-2017 resizes both sides to 256, for 224.
    framing = (
        Framing(backbone.size, backbone.resize, True, backbone.interpolation)
        if frozen
        else Framing(backbone.size, round(backbone.size * 256 / 224), False, "bilinear")
    )
    if config.train_from is not None:
        config = replace(config, train_from=find_stage(backbone, config.train_from))
        backbone = replace(backbone, train_from=config.train_from)
        if has_fast_bf16(pick_device(config.device)):
            config = with_defaults(config, precision="bf16")
    if not frozen:
        return config, Preprocessing(backbone, framing, frozen, config.ten_crop)
    device = pick_device(config.device)
    precision = feature_precision(config.feature_precision, backbone, device, has_fast_bf16(device))
    config = replace(config, feature_precision=precision)
    return config, Preprocessing(backbone, framing, frozen, config.ten_crop, precision)


def _check_crops(config: RunConfig, frozen: bool) -> None:
    if frozen and (config.ten_crop or config.augment != "auto"):
        raise UserError("Random crops and ten crops need a backbone that is trained: add --no-freeze-backbone.")


def _check_stage(config: RunConfig) -> None:
    """Refuse what goes together with no --train-from, or only with it."""
    if config.head_steps and "pretraining" in METHODS[config.method].settings:
        raise UserError(
            f"{config.method} trains on the source first by itself: leave out head_steps, or choose another method."
        )
    if config.head_steps and (config.freeze_backbone or (config.freeze_backbone is None and config.train_from is None)):
        raise UserError(
            f"head_steps is {config.head_steps}, but only a backbone that is trained can wait for its head: add"
            " --train-from or --no-freeze-backbone."
        )
    if config.train_from is None:
        if config.views > 1:
            raise UserError(f"views is {config.views}, but only --train-from stores views of images: add it.")
        return
    if config.views == 1 and (terms := _of_two_views(config)):
        raise UserError(f"{', '.join(terms)} compares two views of an image, but one is stored: add --views 4.")
    if config.freeze_backbone is not None:
        flag = "--freeze-backbone" if config.freeze_backbone else "--no-freeze-backbone"
        raise UserError(f"--train-from {config.train_from} trains the end of the backbone: leave out {flag}.")
    if config.ten_crop:
        raise UserError("Ten crops need a backbone that is trained as a whole: leave out --ten-crop or --train-from.")
    if config.augment != "auto" and config.views == 1:
        raise UserError(f"--augment {config.augment} needs several stored crops of an image: add --views 4.")


def _of_two_views(config: RunConfig) -> list[str]:
    """The terms of a run that compare two views of the target's rows."""
    return [name for name, cls in term_classes(config).items() if cls.needs_views > 1]


def _stored(
    config: RunConfig, architecture: Architecture, preprocessing: Preprocessing | None
) -> tuple[Stem, Looks] | None:
    """What computes the activations that are stored, and in which views."""
    assert preprocessing is not None
    with torch.random.fork_rng(devices=[]):
        stem = build(architecture, backbone=preprocessing.backbone).scaling
    return _looks(config, stem)


def _looks(config: RunConfig, stem: nn.Module) -> tuple[Stem, Looks]:
    """The part of a network before its first trained stage, and in which views images go through it."""
    assert isinstance(stem, Stem)
    views = 0 if config.views == 1 else config.views
    return stem, Looks(views, "center-crop" if config.augment == "center-crop" else "random-crop")


def _choose_network(
    config: RunConfig, source: Domain, target: Domain, preprocessing: Preprocessing | None
) -> RunConfig:
    """The network that suits the data, and the settings that suit the network."""
    name = config.network
    if name is None and (preprocessing is not None or source.kind == "vector"):
        name = "mlp"
    elif name is None:
        shapes = (tuple(source.tensor.shape[1:]), tuple(target.tensor.shape[1:]))
        name = network_for(config.source, config.target, shapes)
    network = NETWORKS[name]
    if (network.takes is not None) != (source.kind != "vector" and preprocessing is None):
        found = "images" if source.kind != "vector" else "feature vectors"
        found = "features of a backbone" if preprocessing is not None else found
        raise UserError(f"The network {name!r} does not take {found}.")
    defaults = network.defaults if preprocessing is None or preprocessing.frozen else TRAINED_BACKBONE
    config = _with_batches(replace(config, network=name), defaults)
    _check_batch(config.batch_size or 0, source)
    _check_batch(config.target_batch_size or 0, target)
    return config


def _with_batches(config: RunConfig, defaults: Mapping[str, Any]) -> RunConfig:
    """Batch sizes, learning rate and weight decay, unless they are given."""
    config = with_defaults(config, **defaults)
    config = with_defaults(config, target_batch_size=config.batch_size)
    if min(config.batch_size or 0, config.target_batch_size or 0) < 2:
        raise UserError("Batch normalisation needs more than one row: expected a batch size of at least 2.")
    return config


def _check_batch(size: int, domain: Domain) -> None:
    if size > max(MOST_PASSES * len(domain), MOST_ROWS):
        raise UserError(f"A batch of {size:,} rows is too large for {domain.name}, which has {len(domain):,}.")


def with_length(
    config: RunConfig, source: Domain, target: Domain, classes: int, length: Length | None = None
) -> RunConfig:
    """Steps that suit the rows, the classes, and whether the target is trained on, unless they are given.

    `length` is the rule; None takes the network's.
    """
    length = length or NETWORKS[str(config.network)].length
    batch_s, batch_t = config.batch_size or 1, config.target_batch_size or 1
    rows, batch = (max(len(source), len(target)), min(batch_s, batch_t)) if adapts(config) else (len(source), batch_s)
    return with_defaults(config, steps=length.steps(rows, classes, batch, adapts(config)))


def _width(domain: Domain) -> int:
    return domain.tensor[0].numel() if isinstance(domain.x, Tensor) else 0


def _prepare(dataset: Dataset, reader: Reader, tell: Tell) -> Dataset:
    """Both parts of a dataset prepared for the network; once where they are the same."""
    done = {}
    for domain in (dataset.train, dataset.test):
        if id(domain) not in done:
            prepared = reader(domain)
            for row, why in prepared.unreadable.items():
                tell(f"note: {domain.name}: {domain.row_name(row)} cannot be read and is left out: {why}")
            done[id(domain)] = prepared.domain
    return Dataset(done[id(dataset.train)], done[id(dataset.test)])


def _draw_target(config: RunConfig, target: Dataset) -> Dataset:
    """The share of the target that training may see."""
    if config.target_share >= 1:
        return target
    by_class = config.target_draw == "oracle-stratified"
    return Dataset(draw_share(target.train, config.target_share, config.seed, by_class), target.test)


def _hold_out(config: RunConfig, source: Dataset) -> tuple[Dataset, Domain | None]:
    """The source without the rows that validators need, and these."""
    if not config.holdout:
        return source, None
    train, held = hold_out(source.train, config.holdout, config.seed)
    return Dataset(train, held if source.test is source.train else source.test), held
