"""Protocols: a dataset with its tasks, the network, and the settings that belong to it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from tsadapt.config import RunConfig
from tsadapt.data.benchmarks import BENCHMARKS
from tsadapt.data.open import data_root, open_dataset
from tsadapt.errors import UserError, unknown
from tsadapt.models.encoders import names_file
from tsadapt.objectives.base import METHODS
from tsadapt.objectives.objective import adapts, with_settings

__all__ = [
    "PROTOCOLS",
    "Protocol",
    "image_size",
    "missing",
    "on_this_machine",
    "our_encoder",
    "protocol_named",
    "with_steps",
]

ENCODERS = Path(__file__).resolve().parent / "encoders"
OURS, IN_DATA = "paper:", "TSADAPT_DATA:"
"""How a protocol names an encoder in paper/encoders, and a file in the folder of datasets: the same everywhere."""


@dataclass(frozen=True)
class Protocol:
    """A dataset as the tables use it.

    `tasks` maps a column to its source and target ({seed} in them stands for the run's seed), `of_task` holds what some
    tasks set differently from `settings`, `text` describes all of it for the page, and `legend` the letters of the
    tasks. `seconds` is about what a step takes on one core (None: it needs a GPU and was never timed),
    `seconds_of_task` where a task differs. `short_plain` says whether runs that do not train on the target have the
    package's own length, which is shorter, and `joint_bn` whether the domains share batch normalisation whatever the
    method. `oracle` says which settings were decided with target accuracies in view. A
    protocol that is not `general` serves only the tables that name it. The paper's numbers for the protocol `beside`
    stand beside those of this one, which has the same tasks; `unlike` says what is different.
    """

    title: str
    tasks: dict[str, tuple[str, str]]
    settings: dict[str, Any]
    text: str
    seconds: float | None
    of_task: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds_of_task: dict[str, float] = field(default_factory=dict)
    legend: str = ""
    short_plain: bool = False
    joint_bn: bool = False
    measure: Literal["accuracy", "mean_class_accuracy"] = "accuracy"
    oracle: str = ""
    general: bool = True
    beside: str = ""
    unlike: str = ""

    def config(self, column: str, seed: int, **settings: Any) -> RunConfig:
        """The whole config of a run of a task."""
        source, target = (name.format(seed=seed) for name in self.tasks[column])
        given = {**self.settings, **self.of_task.get(column, {}), **settings}
        config = with_settings(RunConfig(source, target, seed=seed), **given)
        if config.separate_bn is None:
            config = replace(config, separate_bn=METHODS[config.method].separate_bn and not self.joint_bn)
        return config if adapts(config) or not self.short_plain else replace(config, steps=None)


def _pairs(family: str, domains: dict[str, str], title: str = "") -> dict[str, tuple[str, str]]:
    """Every ordered pair of domains, as columns."""
    return {
        f"{title}{a} → {b}": (f"{family}{domains[a]}", f"{family}{domains[b]}") for a, b in permutations(domains, 2)
    }


def _legend(domains: dict[str, str]) -> str:
    return ", ".join(f"{letters} {name.replace('_', ' ')}" for letters, name in domains.items())


def _chosen(tasks: dict[str, tuple[str, str]], columns: Iterable[str]) -> dict[str, tuple[str, str]]:
    return {column: tasks[column] for column in columns}


OFFICE_HOME = {"Ar": "Art", "Cl": "Clipart", "Pr": "Product", "Rw": "RealWorld"}
OFFICE_31 = {"A": "amazon", "W": "webcam", "D": "dslr"}
OFFICE_31_ORDER = ("A → W", "D → W", "W → D", "A → D", "D → A", "W → A")
OFFICE_31_COLUMNS = tuple(f"Office-31 {column}" for column in OFFICE_31_ORDER)
CALTECH = {"A": "amazon", "C": "caltech10", "D": "dslr", "W": "webcam"}
PACS = {"P": "photo", "A": "art_painting", "C": "cartoon"}
PACS_PAIRS = {
    "PACS photo → cartoon": ("features:pacs_photo", "features:pacs_cartoon"),
    "PACS cartoon → art": ("features:pacs_cartoon", "features:pacs_art_painting"),
}
EMBEDDED_DIGITS = {
    "UCI → MNIST-5k": ("digits:uci", "digits:mnist-5k"),
    "MNIST-5k → UCI": ("digits:mnist-5k", "digits:uci"),
}
RESNET: dict[str, Any] = {
    "backbone": "resnet50", "freeze_backbone": False, "bottleneck": 256, "steps": 20_000, "batch_size": 32,
    "target_batch_size": 32, "lr": 0.01, "weight_decay": 1e-3, "candidates": 5,
}  # fmt: skip
ON_FEATURES: dict[str, Any] = {
    "network": "mlp", "bottleneck": 256, "steps": 1000, "batch_size": 64, "target_batch_size": 64, "lr": 0.01,
    "weight_decay": 1e-3, "candidates": 3,
}  # fmt: skip
FROZEN: dict[str, Any] = {"freeze_backbone": True, "feature_precision": "fp32"}
"""On every machine the same features: the default depends on the processor."""
DIGITS: dict[str, Any] = {
    "network": "mcd-28", "steps": 6000, "batch_size": 128, "target_batch_size": 128, "lr": 0.03, "weight_decay": 5e-4,
    "candidates": 3,
}  # fmt: skip
SMALL_DIGITS: dict[str, Any] = {
    "network": "small-16", "steps": 1500, "batch_size": 64, "target_batch_size": 64, "lr": 0.02, "weight_decay": 1e-3,
    "candidates": 3,
}  # fmt: skip
SMALL_DIGITS_DEFAULT = {**SMALL_DIGITS, "candidates": 1}
DIGITS_TOGETHER = {**DIGITS, "separate_bn": False}
DIGITS_AS_IN_TABLE4 = {**DIGITS_TOGETHER, "bottleneck": None}
"""Where other tasks have a bottleneck: to the letter the same, so that runs of table4 count."""
LONG_SMALL_DIGITS = {**SMALL_DIGITS_DEFAULT, "steps": 3000}
LONG_DIGITS = {**DIGITS, "steps": 3000, "batch_size": 64, "target_batch_size": 64, "lr": 0.01, "candidates": 1}
ON_FEATURES_DEFAULT = {**ON_FEATURES, "candidates": 1}
DTN: dict[str, Any] = {"network": "dtn", "steps": 3000, "batch_size": 64, "target_batch_size": 64, "lr": 0.01}
AS_PUBLISHED = (
    "trained from ImageNet weights, bottleneck 256, batch 32 + 32, SGD with momentum 0.9, rate 0.01 (a tenth for the"
    " backbone), weight decay 0.001; trained on the target's images without their labels, and judged on the same images"
)
SMALL_TEXT = "16×16 network, 1,500 steps, batch 64 + 64, SGD with momentum 0.9, rate 0.02, weight decay 0.001"
FEATURES = (
    "frozen MobileNetV2 features (1,280), Linear–BN–ReLU 256, 1,000 steps, batch 64 + 64, SGD with momentum 0.9, rate"
    " 0.01, weight decay 0.001; source-only and AdaBN 4 passes over the source, at least 100 steps; target rows are"
    " trained on without labels and judged with them"
)

PROTOCOLS = {
    "office-home": Protocol(
        "Office-Home",
        _pairs("office-home:", OFFICE_HOME),
        RESNET,
        f"ResNet-50, {AS_PUBLISHED}; 20,000 steps",
        None,
        legend=_legend(OFFICE_HOME),
    ),
    "office31": Protocol(
        "Office-31",
        _chosen(_pairs("office31:", OFFICE_31), OFFICE_31_ORDER),
        RESNET,
        f"ResNet-50, {AS_PUBLISHED}; 20,000 steps",
        None,
        legend=_legend(OFFICE_31),
    ),
    "visda": Protocol(
        "VisDA-2017",
        {"Synthetic → Real": ("visda:synthetic", "visda:real")},
        {**RESNET, "backbone": "resnet101", "steps": 30_000, "augment": "center-crop"},
        f"ResNet-101, {AS_PUBLISHED}; centre crops, 30,000 steps; the mean of the twelve class accuracies",
        None,
        measure="mean_class_accuracy",
    ),
    "digits": Protocol(
        "digits",
        {
            "M → U": ("digits:mnist", "digits:usps"),
            "U → M": ("digits:usps", "digits:mnist"),
            "SV → M": ("digits:svhn", "digits:mnist"),
            "SY → M": ("digits:syn", "digits:mnist"),
        },
        DIGITS,
        "all training images at hand (the paper's SVHN has 73,257 of 32×32), judged on the test splits; from scratch,"
        " SGD with momentum 0.9, weight decay 0.0005, the domains share batch normalisation: M → U and U → M with"
        " MCD's 28×28 network, 6,000 steps, batch 128 + 128, rate 0.03 (chosen for +TSA by validators, from a range"
        " that was widened with target accuracies in view: `python -m paper digit-rates`); SV → M and SY → M with"
        " CDAN's DTN, 3,000 steps, batch 64 + 64, rate 0.01",
        0.09,
        of_task=dict.fromkeys(("SV → M", "SY → M"), DTN),
        seconds_of_task=dict.fromkeys(("SV → M", "SY → M"), 0.3),
        legend="M MNIST, U USPS, SV SVHN, SY synthetic digits",
        joint_bn=True,
        oracle="range of settings chosen by an oracle",
    ),
    "digits-small": Protocol(
        "digits included in the packages",
        EMBEDDED_DIGITS,
        SMALL_DIGITS,
        SMALL_TEXT,
        0.02,
    ),
    "office31-features": Protocol(
        "Office-31, ResNet-50 features",
        _chosen(_pairs("features:office31-resnet50_", OFFICE_31), OFFICE_31_ORDER),
        ON_FEATURES,
        FEATURES.replace("MobileNetV2 features (1,280)", "ResNet-50 features (2,048)"),
        0.025,
        legend=_legend(OFFICE_31),
        short_plain=True,
        beside="office31",
        unlike="The paper trains the whole ResNet-50, here it is frozen.",
    ),
    "office31-layer4": Protocol(
        "Office-31, ResNet-50 trained from layer4",
        _chosen(_pairs("office31:", OFFICE_31), OFFICE_31_ORDER),
        {
            **RESNET, "backbone": f"{OURS}resnet50_v1", "weights": f"{IN_DATA}weights/resnet50-v1.safetensors",
            "freeze_backbone": None, "train_from": "layer4", "views": 4, "precision": "bf16", "steps": 600,
            "head_steps": 1000, "candidates": 3,
        },
        "ResNet-50 from ImageNet weights, frozen before layer4, its activations there stored for four random crops and"
        " flips of every image; bottleneck 256, SGD with momentum 0.9, rate 0.01 (a tenth for layer4), weight decay"
        " 0.001; bottleneck and head first learn by themselves from 1,000 batches of 64 + 64, then layer4 with them for"
        " 600 steps, batch 32 + 32, in bfloat16; trained on the target's images without their labels, and judged on the"
        " same images",
        2.5,
        legend=_legend(OFFICE_31),
        beside="office31",
        unlike="The paper trains the whole ResNet-50, here its last stage is trained.",
    ),
    "office-caltech": Protocol(
        "Office-Caltech-10",
        _pairs("features:office-caltech_", CALTECH),
        ON_FEATURES,
        FEATURES,
        0.02,
        legend=_legend(CALTECH),
        short_plain=True,
    ),
    "office-caltech-images": Protocol(
        "Office-Caltech-10, images",
        _pairs("office-caltech:", CALTECH),
        {**ON_FEATURES, **FROZEN, "backbone": "torchvision:mobilenet_v2"},
        FEATURES,
        0.02,
        legend=_legend(CALTECH),
        short_plain=True,
    ),
    "moons": Protocol(
        "two moons",
        {"moons turned by 30°": ("moons:source-{seed}", "moons:target-{seed}")},
        {
            "network": "moons", "steps": 500, "batch_size": 64, "target_batch_size": 64, "lr": 0.1,
            "weight_decay": 1e-3, "beta": 0.5, "candidates": 1,
        },
        "300 points a domain with noise 0.1, the target a draw of its own turned by 30°; three layers of 15 features,"
        " 500 steps, batch 64 + 64, SGD with momentum 0.9, rate 0.1, β = 0.5 (chosen on seeds 0 to 9, which are not"
        " reported, by their target accuracy: an oracle's choice)",
        0.01,
        oracle="settings chosen by an oracle",
        general=False,
    ),
    "pacs": Protocol(
        "PACS without its sketches",
        _pairs("features:pacs_", PACS),
        ON_FEATURES,
        FEATURES,
        0.025,
        legend=_legend(PACS),
        short_plain=True,
    ),
    "base-methods": Protocol(
        "embedded digits and PACS",
        {
            **EMBEDDED_DIGITS,
            **PACS_PAIRS,
        },
        {},
        f"the package's defaults for the data. Digits: {SMALL_TEXT}; source-only and AdaBN 16 passes over the source,"
        f" at least 500 steps. PACS: {FEATURES}",
        0.022,
        of_task={
            **dict.fromkeys(EMBEDDED_DIGITS, SMALL_DIGITS_DEFAULT),
            **dict.fromkeys(PACS_PAIRS, ON_FEATURES_DEFAULT),
        },
        short_plain=True,
        general=False,
    ),
    "leaderboard": Protocol(
        "Office-31, PACS and embedded digits",
        {
            **{f"digits: {column}": names for column, names in EMBEDDED_DIGITS.items()},
            **_chosen(
                _pairs("features:office31-resnet50_", OFFICE_31, "Office-31: "),
                [f"Office-31: {column}" for column in OFFICE_31_ORDER],
            ),
            **_pairs("features:pacs_", PACS, "PACS: "),
        },
        ON_FEATURES,
        f"features of Office-31 are those of a ResNet-50 (2,048). {FEATURES}. Digits: {SMALL_TEXT}; source-only and"
        " AdaBN 16 passes over the source, at least 500 steps",
        0.03,
        of_task={f"digits: {column}": SMALL_DIGITS for column in EMBEDDED_DIGITS},
        legend=f"{_legend(OFFICE_31)}; PACS: {_legend(PACS)}",
        short_plain=True,
        general=False,
    ),
    "preset": Protocol(
        "PACS, embedded digits and Office-Caltech-10; Office-31, MNIST and USPS",
        {
            **_pairs("features:pacs_", PACS, "PACS: "),
            **{f"digits: {column}": names for column, names in EMBEDDED_DIGITS.items()},
            **_chosen(
                _pairs("features:office-caltech_", CALTECH, "Caltech: "),
                ("Caltech: A → C", "Caltech: C → D", "Caltech: D → A", "Caltech: W → C"),
            ),
            **_chosen(
                _pairs("features:office31-resnet50_", OFFICE_31, "Office-31: "),
                [f"Office-31: {column}" for column in OFFICE_31_ORDER],
            ),
            "28×28: M → U": ("digits:mnist", "digits:usps"),
            "28×28: U → M": ("digits:usps", "digits:mnist"),
        },
        ON_FEATURES,
        f"settings are chosen on PACS, embedded digits and Office-Caltech-10, whose target accuracies were looked at,"
        f" and judged on Office-31 and on MNIST and USPS. Features of Office-31 are those of a ResNet-50 (2,048)."
        f" {FEATURES}. Embedded digits: {SMALL_TEXT}; source-only and AdaBN 16 passes over the source, at least 500"
        " steps. MNIST and USPS as in table4",
        0.02,
        of_task={
            **{f"digits: {column}": SMALL_DIGITS for column in EMBEDDED_DIGITS},
            **dict.fromkeys(("28×28: M → U", "28×28: U → M"), DIGITS_AS_IN_TABLE4),
        },
        seconds_of_task=dict.fromkeys(("28×28: M → U", "28×28: U → M"), 0.09),
        legend=f"PACS: {_legend(PACS)}; Caltech: {_legend(CALTECH)}; Office-31: {_legend(OFFICE_31)}",
        short_plain=True,
        oracle="settings chosen by an oracle on three suites",
        general=False,
    ),
    "normalisation": Protocol(
        "Office-31, PACS and embedded digits",
        {
            "Office-31 A → W": ("features:office31-resnet50_amazon", "features:office31-resnet50_webcam"),
            "Office-31 D → A": ("features:office31-resnet50_dslr", "features:office31-resnet50_amazon"),
            **PACS_PAIRS,
            **EMBEDDED_DIGITS,
        },
        ON_FEATURES_DEFAULT,
        f"the package's defaults for the data. Features of Office-31 are those of a ResNet-50 (2,048). {FEATURES}."
        f" Digits: {SMALL_TEXT}",
        0.025,
        of_task=dict.fromkeys(EMBEDDED_DIGITS, SMALL_DIGITS_DEFAULT),
        short_plain=True,
        general=False,
    ),
    "selection": Protocol(
        "embedded digits and PACS",
        {
            **EMBEDDED_DIGITS,
            "PACS photo → cartoon": ("features:pacs_photo", "features:pacs_cartoon"),
            "PACS art → cartoon": ("features:pacs_art_painting", "features:pacs_cartoon"),
            "PACS cartoon → photo": ("features:pacs_cartoon", "features:pacs_photo"),
        },
        {"holdout": 0.1},
        f"a tenth of the source held out. Digits: {SMALL_TEXT}. PACS: {FEATURES}",
        0.022,
        of_task={
            **dict.fromkeys(EMBEDDED_DIGITS, SMALL_DIGITS_DEFAULT),
            **dict.fromkeys(
                ("PACS photo → cartoon", "PACS art → cartoon", "PACS cartoon → photo"), ON_FEATURES_DEFAULT
            ),
        },
        general=False,
    ),
    "trust": Protocol(
        "PACS and embedded digits, Office-31 and Office-Caltech-10",
        {
            **_pairs("features:pacs_", PACS, "PACS "),
            **EMBEDDED_DIGITS,
            **_chosen(_pairs("features:office31-resnet50_", OFFICE_31, "Office-31 "), OFFICE_31_COLUMNS),
            **_pairs("features:office-caltech_", CALTECH, "Caltech "),
        },
        {**ON_FEATURES_DEFAULT, "holdout": 0.1},
        f"a tenth of the source held out. Features of Office-31 are those of a ResNet-50 (2,048). {FEATURES}. Digits:"
        f" {SMALL_TEXT}",
        0.025,
        of_task=dict.fromkeys(EMBEDDED_DIGITS, SMALL_DIGITS_DEFAULT),
        short_plain=True,
        general=False,
    ),
    "length": Protocol(
        "features and digits",
        {
            **_chosen(_pairs("features:pacs_", PACS, "PACS "), ("PACS P → C", "PACS A → P", "PACS C → A")),
            **_chosen(
                _pairs("features:office31-resnet50_", OFFICE_31, "Office-31 "),
                ("Office-31 A → W", "Office-31 D → A", "Office-31 W → A"),
            ),
            **_chosen(
                _pairs("features:office-caltech_", CALTECH, "Caltech "),
                ("Caltech A → C", "Caltech C → A", "Caltech D → A", "Caltech W → A"),
            ),
            **EMBEDDED_DIGITS,
            "MNIST → USPS": ("digits:mnist", "digits:usps"),
            "USPS → MNIST": ("digits:usps", "digits:mnist"),
        },
        {**ON_FEATURES_DEFAULT, "holdout": 0.2},
        "source-only with the package's defaults for the data but for the length: 1,000 steps on features, 3,000 on"
        " digits; a fifth of the source is held out",
        0.008,
        of_task={
            **dict.fromkeys(EMBEDDED_DIGITS, LONG_SMALL_DIGITS),
            **dict.fromkeys(("MNIST → USPS", "USPS → MNIST"), LONG_DIGITS),
        },
        seconds_of_task=dict.fromkeys(("MNIST → USPS", "USPS → MNIST"), 0.05),
        general=False,
    ),
    "embeddings": Protocol(
        "embeddings of Office-Caltech-10 and PACS",
        {
            f"{title}: {a} → {b}": (f"features:{family}_{a}", f"features:{family}_{b}")
            for title, family, domains in (
                ("Office-Caltech-10", "office-caltech", CALTECH.values()), ("PACS", "pacs", PACS.values())
            )
            for a, b in permutations(domains, 2)
        },
        ON_FEATURES_DEFAULT,
        "MobileNetV2 features (1,280), every method with its default settings. Ours are `DomainAdaptationClassifier()`,"
        " with mutual information, and `TSAClassifier()`; skada 0.6.0 adapts logistic regression",
        0.02,
        short_plain=True,
        general=False,
    ),
}  # fmt: skip
"""By the name that --on has for them."""


def protocol_named(name: str, frozen: bool = False, weights: str | None = None) -> Protocol:
    """A protocol by its name; with `frozen`, or other `weights`, the variant of it that those make."""
    if name not in PROTOCOLS:
        raise UserError(unknown("data", name, [name for name, known in PROTOCOLS.items() if known.general]))
    found = PROTOCOLS[name]
    if frozen:
        found = _frozen(found)
    return found if weights is None else _with_weights(found, weights)


def _frozen(protocol: Protocol) -> Protocol:
    """The same data on features of the frozen backbone."""
    if "backbone" not in protocol.settings:
        raise UserError(f"--frozen is for photographs: {protocol.title} needs no backbone.")
    if protocol.settings["freeze_backbone"]:
        raise UserError(f"{protocol.title}: the backbone is frozen already, leave out --frozen.")
    backbone = protocol.settings["backbone"]
    settings = {**ON_FEATURES, **FROZEN, "backbone": backbone}
    text = FEATURES.replace("MobileNetV2 features (1,280)", f"{backbone} features")
    return replace(protocol, settings=settings, text=text, seconds=0.03, short_plain=True)


def _with_weights(protocol: Protocol, weights: str) -> Protocol:
    """The same with the backbone's weights from a file, or with random ones."""
    if "backbone" not in protocol.settings:
        raise UserError(f"--weights is for photographs: {protocol.title} needs no backbone.")
    path = Path(weights).expanduser()
    if weights != "none" and not path.is_file():
        raise UserError(f"No weights at {weights}: expected a .safetensors or .pth file, or none for random weights.")
    what = "with random weights" if weights == "none" else f"with the weights of {path.name}"
    text = protocol.text.replace("trained from ImageNet weights", f"trained {what}")
    text = text if text != protocol.text else f"{text}; backbone {what}"
    same = weights if weights == "none" else str(path.resolve())  # however the path is written
    return replace(protocol, settings={**protocol.settings, "weights": same}, text=text)


def with_steps(protocol: Protocol, steps: int, text: str, **settings: Any) -> Protocol:
    """The same with another number of steps, and the text that says so."""
    return replace(
        protocol,
        settings={**protocol.settings, "steps": steps, **settings},
        of_task={name: {**given, "steps": steps, **settings} for name, given in protocol.of_task.items()},
        text=text,
        short_plain=False,
    )


def on_this_machine(config: RunConfig) -> RunConfig:
    """The config with paths in place of what protocols name: encoders of ours, and files in the folder of datasets."""
    backbone, weights = config.backbone or "", config.weights or ""
    if backbone.startswith(OURS):
        name = backbone.removeprefix(OURS)
        config = replace(config, backbone=f"{ENCODERS / name}.py:{name}")
    if weights.startswith(IN_DATA):
        file = (data_root() or Path()) / weights.removeprefix(IN_DATA)
        if not file.is_file():
            raise UserError(f"No weights at {file}: expected {file.name} in the folder that TSADAPT_DATA names.")
        config = replace(config, weights=str(file))
    return config


def our_encoder(config: RunConfig) -> str | None:
    """The encoder that `load` needs again for a run of ours; None if it has none. Other code is not run."""
    if config.backbone is None or not names_file(config.backbone):
        return None
    if not Path(config.backbone).resolve().is_relative_to(ENCODERS):
        raise UserError(f"The run names code that is not in {ENCODERS}: {config.backbone}.")
    return config.backbone


@cache
def missing(name: str) -> str:
    """Why data is missing, in a line; empty if it is there."""
    try:
        open_dataset(name)
    except UserError as error:
        return str(error)
    return ""


@cache
def short_copy(name: str) -> str:
    """What is wrong with a benchmark's copy that does not have its official number of images; empty for other data."""
    family, _, member = name.partition(":")
    expected = BENCHMARKS[family].domains.get(member) if family in BENCHMARKS else None
    if expected is None or missing(name):
        return ""
    images = len(open_dataset(name).train)
    return "" if images == expected else f"{name} has {images:,} images, expected {expected:,}"


@cache
def image_size(name: str) -> str:
    """Height and width of the images of data that is in memory; empty for other data."""
    x = open_dataset(name).train.x
    return f"{x.shape[2]}×{x.shape[3]}" if isinstance(x, Tensor) and x.ndim == 4 else ""
