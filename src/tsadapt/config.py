"""What a run is: a frozen dataclass, to and from TOML, and the hash that names it. Imports nothing heavy."""

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints
from urllib.parse import quote, unquote_to_bytes

from tsadapt.errors import UserError, unknown
from tsadapt.settings import Setting, described, setting

__all__ = [
    "RUN_SETTINGS",
    "SHORTHANDS",
    "FeaturePrecision",
    "Precision",
    "RunConfig",
    "differing_keys",
    "read_config",
    "read_toml",
    "to_toml",
]

REVISION = 3
"""What a config means, and the shape of a run's folder. Raised when either changes: older folders are then refused."""

MemoryStorage = Literal[
    "float32", "float16", "bfloat16", "float32-cpu", "float16-cpu", "bfloat16-cpu", "float32-disk", "float16-disk",
    "bfloat16-disk",
]  # fmt: skip
Precision = Literal["fp32", "bf16"]
FeaturePrecision = Literal["fp32", "fp32-fused", "bf16"]
"""How features of a frozen backbone are computed: in float32, the same with fused layers, or in bfloat16."""

DATA, OBJECTIVE, NETWORK = "data", "objective", "network"
OPTIMISATION, RUN = "optimisation", "run"


@dataclass(frozen=True)
class RunConfig:
    """One training run. None means "what suits the data", and is filled in before the run starts.

    `settings` are those of the terms, by the term's name; what is not there has the term's default. Settings of terms
    that the run does not have count for nothing.

    >>> config = RunConfig("digits:uci", "digits:mnist-5k", source_term="tsa", target_terms=("mi",))
    >>> replace(config, seed=1).hash() == config.hash()
    False
    """

    source: str
    target: str
    source_free: str | None = setting(
        None, "Adapt a trained RUN (its folder) to TARGET, given alone, without the source's data.", group=DATA,
        metavar="RUN", shown="no run",
    )  # fmt: skip
    id_column: str | None = setting(
        None, "Column of a table that names the rows: carried through to predictions, no feature.", group=DATA,
        metavar="NAME", shown="an index without a name",
    )  # fmt: skip
    label_column: str | None = setting(
        None, "Column of a table that holds the labels.", group=DATA, metavar="NAME", shown="label, class, target or y"
    )
    holdout: float = setting(
        0.0, "Share of each source class kept out of training, for validators.", group=DATA, at_least=0, at_most=0.5
    )
    target_share: float = setting(
        1.0,
        "Share of the target rows that training may see; all of them are evaluated.",
        group=DATA,
        above=0,
        at_most=1,
    )
    target_draw: Literal["uniform", "oracle-stratified"] = setting(
        "uniform", "How that share is drawn; oracle-stratified draws within each class, by target labels.", group=DATA
    )
    target_labels: str | None = setting(
        None, "A few labelled target rows, to measure with: a CSV with lines name,label, or class folders.", group=DATA,
        metavar="FILE", shown="none",
    )  # fmt: skip
    use_target_labels: bool = setting(
        False, "Train on these rows too, with their labels: a result that is not unsupervised, and says so.", group=DATA
    )
    method: str = setting(
        "source-only", "What brings the domains together (tsadapt list methods).", group=OBJECTIVE, metavar="NAME"
    )
    source_term: str = setting(
        "ce", "Loss of the labelled source (tsadapt list source-terms).", group=OBJECTIVE, metavar="NAME"
    )
    target_terms: tuple[str, ...] = setting(
        (), "Loss of the unlabelled target; may be repeated (tsadapt list target-terms).", group=OBJECTIVE,
        metavar="NAME", shown="none", flag="target_term",
    )  # fmt: skip
    term_weight: dict[str, float] = setting(
        {}, "NAME=NUMBER: weight of one term; 0 leaves it out. May be repeated.", group=OBJECTIVE,
        shown="1 for each",
    )  # fmt: skip
    settings: dict[str, dict[str, Any]] = setting({}, "Settings of the terms, by the term's name.")
    network: str | None = setting(
        None,
        "Network on top of the inputs (tsadapt list networks).",
        group=NETWORK,
        metavar="NAME",
        shown="chosen by the data",
    )
    bottleneck: int | None = setting(None, "Features of the MLP's hidden layer.", group=NETWORK, above=0, shown="256")
    backbone: str | None = setting(
        None,
        "For photographs: a timm network, torchvision:NAME (tsadapt list backbones), or your own FILE.py:FUNCTION.",
        group=NETWORK,
        metavar="NAME",
        shown="resnet50",
    )
    weights: str | None = setting(
        None, "Backbone weights: a .safetensors or .pth file, or none for random ones.", group=NETWORK, metavar="FILE",
        shown="downloaded",
    )  # fmt: skip
    freeze_backbone: bool | None = setting(
        None, "Compute the backbone's features once and train on them.", group=NETWORK, shown="on a CPU",
        off="Train the backbone too.", switches={"freeze_backbone": True, "no_freeze_backbone": False},
    )  # fmt: skip
    train_from: str | None = setting(
        None, "Train the backbone from this stage on: its name, or -1, -2 for the last, the last two (tsadapt list"
        " backbones --stages NAME). What lies before is computed once.", group=NETWORK, metavar="STAGE",
        shown="nothing, or all of it",
    )  # fmt: skip
    views: int = setting(
        1, "With --train-from: random crops and flips of every image that training sees; 1 is the centre alone.",
        group=NETWORK, above=0, at_most=1000,
    )  # fmt: skip
    head_steps: int = setting(
        0, "Steps that train bottleneck and head alone, before the backbone (or its last stages) is trained too.",
        group=NETWORK, at_least=0,
    )  # fmt: skip
    feature_precision: FeaturePrecision | None = setting(
        None, "How a frozen backbone computes features: fp32, fp32-fused (layers fused: the same but for rounding), or"
        " bf16.", group=NETWORK, usual="fp32",
        shown="bf16 where the CPU has it and the features agree, else fp32-fused; fp32 on a GPU",
    )  # fmt: skip
    image_size: int | None = setting(
        None, "Side of the images that the backbone takes, in pixels.", group=NETWORK, above=0, shown="the backbone's"
    )
    augment: Literal["auto", "random-crop", "center-crop"] = setting(
        "auto", "How training images are cropped, with the backbone trained.", group=NETWORK
    )
    ten_crop: bool = setting(False, "Evaluate on ten crops of every image, with the backbone trained.", group=NETWORK)
    separate_bn: bool | None = setting(
        None, "Forward the two domains one by one, so that they do not share batch normalisation.", group=NETWORK,
        shown="for dann, bsp+dann, jada, dan, afn, gvb, adda, symnets, etd, dmrl, tat, tpn and simnet",
        off="Forward the two domains together.",
        switches={"separate_bn": True, "joint_bn": False},
    )  # fmt: skip
    steps: int | None = setting(
        None, "Training steps.", group=OPTIMISATION, above=0,
        shown="by the data: 1000 for vectors and features, 1500 to 3000 for digits, 5000 with the backbone trained,"
        " 1000 with its last stages; more for many rows or classes, fewer if nothing is adapted",
    )  # fmt: skip
    batch_size: int | None = setting(
        None, "Rows of each domain in a step.", group=OPTIMISATION, above=0, shown="64; 32 with the backbone trained"
    )
    target_batch_size: int | None = setting(
        None, "Rows of the target in a step.", group=OPTIMISATION, above=0, shown="--batch-size"
    )
    lr: float | None = setting(
        None, "Initial learning rate.", group=OPTIMISATION, above=0, shown="0.01; 0.02 for the smallest digits"
    )
    momentum: float = setting(0.9, "Nesterov momentum of SGD.", group=OPTIMISATION, at_least=0)
    weight_decay: float | None = setting(
        None, "Weight decay.", group=OPTIMISATION, at_least=0, shown="0.001; 0.0005 for larger digits"
    )
    lr_gamma: float = setting(
        1e-3, "How fast the learning rate falls: lr·(1 + γ·step)^-0.75.", group=OPTIMISATION, at_least=0
    )
    sdat: bool = setting(
        False, "Sharpness-aware steps: take the gradient at weights moved up the slope of source and target terms.",
        group=OPTIMISATION,
    )  # fmt: skip
    sdat_rho: float = setting(0.05, "How far --sdat moves the weights (ρ).", group=OPTIMISATION, above=0)
    precision: Precision | None = setting(
        None, "Precision of the forward pass.", group=OPTIMISATION, usual="fp32",
        shown="fp32; with --train-from bf16 where the CPU has it",
    )  # fmt: skip
    compile: bool = setting(
        False, "Compile the network's training pass by torch.compile: faster steps after a slow first one. Needs a C++"
        " compiler, or Triton on a GPU.", group=OPTIMISATION, result=False,
    )  # fmt: skip
    candidates: int = setting(
        1, "Evenly spaced steps that validators choose among; 1 is the last step alone.", group=RUN, above=0
    )
    seed: int = setting(0, "Seed of everything random.", group=RUN, at_least=0, at_most=2**63 - 1)
    device: str = setting("auto", "auto, cpu, cuda, …", group=RUN, metavar="NAME", result=False)
    workers: int | None = setting(
        None,
        "Processes that decode images, and on a CPU compute a frozen backbone's features.",
        group=RUN,
        at_least=0,
        shown="one per core, at most 8; 32 for features",
        result=False,
    )
    log_every: int = setting(50, "Steps between two lines of the records.", group=RUN, above=0)
    memory_storage: MemoryStorage = setting(
        "float32", "How TSA's memory keeps its rows: in float32 or half of it, on the CPU beside a network on a GPU,"
        " or in a file on the disk.", group=RUN,
    )  # fmt: skip
    checkpoint_every: int = setting(200, "Steps between two checkpoints.", group=RUN, above=0, result=False)

    def __post_init__(self) -> None:
        for name, one in RUN_SETTINGS.items():
            if name != "settings":
                object.__setattr__(self, name, one.check(getattr(self, name)))
        if len(set(self.target_terms)) < len(self.target_terms):
            raise UserError(f"target_terms is {', '.join(self.target_terms)}: each term can be given once.")
        if not isinstance(self.settings, Mapping) or not all(isinstance(v, Mapping) for v in self.settings.values()):
            raise UserError(f"settings is {self.settings!r}, expected a table of settings for each term by its name.")
        object.__setattr__(self, "settings", {term: dict(given) for term, given in self.settings.items()})

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms of the objective: the source term, the target terms, the method."""
        return tuple(dict.fromkeys((self.source_term, *self.target_terms, self.method)))

    @property
    def objective(self) -> str:
        """What is minimised, in a few words: tsa + mi + dann, or source-only; with sdat at its end if so."""
        method = () if self.method == "source-only" else (self.method,)
        parts = tuple(name for name in (self.source_term, *self.target_terms) if self.term_weight.get(name, 1.0))
        parts += method
        parts += ("target labels",) if self.use_target_labels else ()
        return ("source-only" if parts == ("ce",) else " + ".join(parts)) + (" + sdat" if self.sdat else "")

    def result_keys(self) -> dict[str, Any]:
        """Every setting that the result depends on; those of terms as TERM.NAME."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in NOT_RESULT and f.name != "settings"}
        if not self.use_target_labels:  # they measure, and change nothing
            del own["target_labels"]
        mine = {term: self.settings.get(term, {}) for term in self.terms}
        return own | {f"{term}.{name}": value for term, given in mine.items() for name, value in given.items()}

    def hash(self) -> str:
        """Twelve characters that name the run: equal for equal results, whatever the device or the checkpoints.

        A setting at its default is no part of it, so that a new setting leaves the names of older runs alone.
        """
        changed = {
            k: v
            for k, v in self.result_keys().items()
            if k not in RUN_SETTINGS or v not in (RUN_SETTINGS[k].default, RUN_SETTINGS[k].usual)
        }
        text = json.dumps([REVISION, changed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


RUN_SETTINGS: dict[str, Setting] = {
    field.name: described(field.name, get_type_hints(RunConfig)[field.name], field)
    for field in fields(RunConfig)
    if field.metadata
}
"""Every setting of a run, by name; source and target aside."""

SHORTHANDS = {
    "tsa": Setting("tsa", bool, False, "Short for --source-term tsa --target-term mi."),
    "mi": Setting("mi", bool, False, "Short for --target-term mi."),
    "preset": Setting(
        "preset",
        str | None,
        None,
        "Settings that were tried together (tsadapt list presets); flags take precedence.",
        metavar="NAME",
        shown="none",
    ),
}
"""Settings that stand for others."""

NOT_RESULT = tuple(name for name, one in RUN_SETTINGS.items() if not one.result)


def differing_keys(a: RunConfig, b: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The settings in which two runs differ, with both values; None for a term's setting at its default."""
    left, right = a.result_keys(), b.result_keys()
    return {k: (left.get(k), right.get(k)) for k in {**left, **right} if left.get(k) != right.get(k)}


def to_toml(config: RunConfig) -> str:
    """The config as TOML; a field that is None or empty is left out.

    >>> config = RunConfig("a", "b", lr=0.1, source_term="tsa", settings={"tsa": {"lambda0": 0.5}})
    >>> RunConfig(**read_toml(to_toml(config), "here")) == config
    True
    """
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return "\n".join(_toml_lines({"revision": REVISION, **values})) + "\n"


BYTES = "percent-encoded"
"""The key of a file name that is no text: its bytes as in a URL. TOML holds Unicode alone."""


def _toml_value(value: Any) -> str:
    """A JSON string, number, boolean or array is one of TOML's too, but for DEL, and for bytes that are no UTF-8."""
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            try:
                return f'{{ {BYTES} = "{quote(os.fsencode(value))}" }}'
            except UnicodeEncodeError:
                raise UserError(
                    f"{value!r} cannot be saved in a config: expected the name of a file, or text."
                ) from None
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _file_names(values: Any) -> Any:
    """What was read, with names of files that are no text as Python has them."""
    if not isinstance(values, dict):
        return values
    if [*values] == [BYTES] and isinstance(values[BYTES], str):
        return os.fsdecode(unquote_to_bytes(values[BYTES]))
    return {key: _file_names(value) for key, value in values.items()}


def _toml_lines(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[str]:
    """Lines of a table, its own values first."""
    plain = {k: v for k, v in values.items() if v is not None and not isinstance(v, Mapping)}
    tables = {k: v for k, v in values.items() if isinstance(v, Mapping) and v}
    lines = [f"[{'.'.join(map(_toml_key, path))}]"] if path and plain else []
    lines += [f"{_toml_key(k)} = {_toml_value(v)}" for k, v in plain.items()]
    return lines + [line for k, v in tables.items() for line in _toml_lines(v, (*path, k))]


def _toml_key(key: str) -> str:
    bare = key.replace("-", "").replace("_", "")
    return key if bare.isascii() and bare.isalnum() else _toml_value(key)


def read_toml(text: str, where: str) -> dict[str, Any]:
    """The settings of a TOML text, its revision checked; `where` names it in messages."""
    try:
        values: dict[str, Any] = _file_names(tomllib.loads(text))
    except RecursionError as error:
        raise UserError(f"{where} is not a config: its tables or lists are nested too deeply.") from error
    except ValueError as error:  # also of numbers that are too long
        raise UserError(f"{where} is not TOML: {error}.") from error
    if "revision" in values and values.get("freeze_backbone"):  # a run's, maybe from when there was one way
        values.setdefault("feature_precision", "fp32")
    revision = values.pop("revision", REVISION)
    if revision != REVISION:
        raise UserError(
            f"{where} has revision {revision}, expected {REVISION}: another version of tsadapt wrote it. Train again."
        )
    return values


def read_file(path: Path) -> str:
    """The text of a config file."""
    if not path.is_file():
        raise UserError(f"No config at {path}: expected a TOML file.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file in UTF-8: {error.reason}.") from error


def read_config(path: Path) -> RunConfig:
    """The config that a run wrote; one of an older shape is refused."""
    text = read_file(path)
    if not text.startswith("revision"):
        raise UserError(f"{path.parent} was written by an older version of tsadapt: train again, in another folder.")
    values = read_toml(text, str(path))
    known = {field.name for field in fields(RunConfig)}
    for key in values:
        if key not in known:
            raise UserError(f"{path}: {unknown('setting', key, sorted(known))}")
    for key in ("source", "target"):
        if not isinstance(values.get(key), str):
            raise UserError(f'{path} has no {key}: expected {key} = "…".')
    return RunConfig(**values)


def with_defaults(config: RunConfig, **defaults: Any) -> RunConfig:
    """Fill in the fields that are None."""
    return replace(config, **{key: value for key, value in defaults.items() if getattr(config, key) is None})
