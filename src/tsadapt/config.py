"""What a run is: frozen dataclasses, to and from TOML, and the hash that names it. Imports nothing heavy."""

import contextlib
import hashlib
import json
import math
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tsadapt.errors import UserError, unknown

__all__ = ["RunConfig", "differing_keys", "from_toml", "read_config", "to_toml", "typed_setting", "with_defaults"]

SourceTermName = Literal["ce", "isda", "tsa", "sampled"]
Estimator = Literal["memory", "iterative"]
Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class RunConfig:
    """One training run. None means "what suits the data", and is filled in before the run starts.

    >>> config = RunConfig("digits:uci", "digits:mnist-5k", source_term="tsa", mi=True)
    >>> replace(config, seed=1).hash() == config.hash()
    False
    """

    source: str
    target: str
    method: str = "source-only"
    source_term: SourceTermName = "ce"
    mi: bool = False
    lambda0: float = 0.25
    beta: float = 0.1
    class_prior: str = "uniform"
    reversal: Literal["progress", "iteration"] = "progress"
    entropy_grad: Literal["none", "reversed"] = "none"
    term_weight: tuple[str, ...] = ()
    estimator: Estimator = "memory"
    samples: int = 8
    mean_shift: bool = True
    covariance: Literal["target", "none"] = "target"
    policy: Literal["skip", "official", "global"] = "skip"
    min_count: int = 1
    network: str | None = None
    bottleneck: int | None = None
    backbone: str | None = None
    weights: str | None = None
    freeze_backbone: bool | None = None
    image_size: int | None = None
    augment: Literal["auto", "random-crop", "center-crop"] = "auto"
    ten_crop: bool = False
    steps: int | None = None
    batch_size: int | None = None
    target_batch_size: int | None = None
    lr: float | None = None
    momentum: float = 0.9
    weight_decay: float | None = None
    lr_gamma: float = 1e-3
    separate_bn: bool = False
    holdout: float = 0.0
    target_share: float = 1.0
    target_draw: Literal["uniform", "oracle-stratified"] = "uniform"
    candidates: int = 1
    seed: int = 0
    precision: Precision = "fp32"
    device: str = "auto"
    workers: int | None = None
    log_every: int = 50
    checkpoint_every: int = 200

    def __post_init__(self) -> None:
        for name in ("lr", "lambda0", "beta", "momentum", "weight_decay", "lr_gamma"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise UserError(f"{name} is {value}, expected a finite number.")
        positive = (
            "steps",
            "batch_size",
            "target_batch_size",
            "lr",
            "samples",
            "min_count",
            "bottleneck",
            "image_size",
            "candidates",
        )
        for name in (*positive, "log_every", "checkpoint_every"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UserError(f"{name} is {value}, expected more than zero.")
        for name in ("lambda0", "beta", "momentum", "weight_decay", "lr_gamma", "workers"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UserError(f"{name} is {value}, expected zero or more.")
        if not 0 <= self.holdout <= 0.5:
            raise UserError(f"holdout is {self.holdout}, expected a share of the source from 0 to 0.5.")
        if not 0 < self.target_share <= 1:
            raise UserError(f"target_share is {self.target_share}, expected a share of the target above 0, up to 1.")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed is {self.seed}, expected a whole number from 0 to {2**63 - 1}.")
        for field, hint in get_type_hints(RunConfig).items():
            if get_origin(hint) is Literal and getattr(self, field) not in get_args(hint):
                choices = ", ".join(map(repr, get_args(hint)))
                raise UserError(f"{field} is {getattr(self, field)!r}, expected one of {choices}.")

        self.term_weights()

    def term_weights(self) -> dict[str, float]:
        """The factors of terms of the objective, by name.

        >>> RunConfig("a", "b", term_weight=("domain=0.5", "mi=0")).term_weights()
        {'domain': 0.5, 'mi': 0.0}
        """
        weights = {}
        for text in self.term_weight:
            name, _, value = text.partition("=")
            try:
                weights[name.strip()] = float(value)
            except ValueError:
                raise UserError(f"term_weight is {text!r}, expected NAME=NUMBER, such as domain=0.5.") from None
            if not math.isfinite(weights[name.strip()]):
                raise UserError(f"term_weight is {text!r}, expected a finite number.")
        return weights

    def result_keys(self) -> dict[str, Any]:
        """Every field that the result depends on, set or not."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in HOW_NOT_WHAT}

    def hash(self) -> str:
        """Twelve characters that name the run: equal for equal results, whatever the device or the checkpoints."""
        unset = {f.name: f.default for f in fields(self) if f.name in ADDED}
        keys = {key: value for key, value in self.result_keys().items() if key not in ADDED or value != unset[key]}
        text = json.dumps(keys, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


HOW_NOT_WHAT = ("device", "workers", "checkpoint_every")
"""Fields that change how a run is done and not what comes out of it."""

ADDED = ("holdout", "candidates", "target_share", "target_draw")
"""Fields that came later: at their default they are no part of the hash, so that older runs keep their names."""


def differing_keys(a: RunConfig, b: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The fields in which two runs differ, with both values."""
    left, right = a.result_keys(), b.result_keys()
    return {key: (left[key], right[key]) for key in left if left[key] != right[key]}


def to_toml(config: RunConfig) -> str:
    """The config as TOML, one field a line; a field that is None is left out.

    >>> from_toml(to_toml(RunConfig("a", "b", lr=0.1))) == RunConfig("a", "b", lr=0.1)
    True
    """
    lines = []
    for field in fields(config):
        value = getattr(config, field.name)
        if value is not None:
            # A JSON string, number or boolean is one of TOML's too.
            lines.append(f"{field.name} = {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def from_toml(text: str, where: str = "the config", **given: Any) -> RunConfig:
    """A config from TOML; `given` takes precedence, and `where` names the text in messages."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{where} is not TOML: {error}.") from error
    known = {f.name for f in fields(RunConfig)}
    for key in values:
        if key not in known:
            raise UserError(f"{where}: {unknown('setting', key, sorted(known))}")
    values |= given
    for key in ("source", "target"):
        if key not in values:
            raise UserError(f'{where} names no {key}: expected {key} = "...".')
    return RunConfig(**_typed(values, where))


def read_config(path: Path, **given: Any) -> RunConfig:
    """The config in a TOML file."""
    if not path.is_file():
        raise UserError(f"No config at {path}: expected a TOML file.")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file in UTF-8: {error.reason}.") from error
    return from_toml(text, str(path), **given)


def _typed(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Check the values' types; a whole number will do where a fraction is asked for."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        hint = get_type_hints(RunConfig)[key]
        allowed = set(get_args(hint)) if get_origin(hint) is not Literal else {str}
        allowed = allowed or {hint}
        if get_origin(hint) is tuple and isinstance(value, list) and all(isinstance(v, str) for v in value):
            out[key] = tuple(value)
        elif float in allowed and type(value) is int:
            out[key] = float(value)
        elif type(value) in allowed:
            out[key] = value
        else:
            names = " or ".join(sorted(t.__name__ for t in allowed if t is not type(None)))
            raise UserError(f"{where}: {key} is {value!r}, expected {names}.")
    return out


def typed_setting(name: str, text: str) -> Any:
    """A setting's value from a word of the command line.

    >>> typed_setting("mi", "true"), typed_setting("steps", "100"), typed_setting("method", "dann")
    (True, 100, 'dann')
    """
    hint = get_type_hints(RunConfig)[name]
    kinds = {hint, *get_args(hint)} if get_origin(hint) is not Literal else {str}
    word = text.strip()
    if bool in kinds and word.lower() in ("true", "false"):
        return word.lower() == "true"
    for kind in (int, float):
        if kind in kinds:
            with contextlib.suppress(ValueError):
                return kind(word)
    if str in kinds and word:
        return (word,) if get_origin(hint) is tuple else word
    wanted = {bool: "true or false", float: "a number", int: "a whole number", str: "a word"}
    raise UserError(f"{name} is {word!r}, expected {next(what for kind, what in wanted.items() if kind in kinds)}.")


def with_defaults(config: RunConfig, **defaults: Any) -> RunConfig:
    """Fill in the fields that are None."""
    return replace(config, **{key: value for key, value in defaults.items() if getattr(config, key) is None})
