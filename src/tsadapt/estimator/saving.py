"""Estimators as files without pickle: tensors and one JSON text, so that reading one never runs code.

A file is of the safetensors format: the weights of the network in float64, outputs of some rows for validators, and in
its metadata everything else, as JSON.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as packed
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from tsadapt.files import write_atomically
from tsadapt.models.encoders import copy_of, module_origin
from tsadapt.models.networks import Architecture, build
from tsadapt.runs.model import TrainedModel

__all__ = ["read_estimator", "write_estimator"]

KEY, SEAL, FORMAT = "tsadapt", "sha256", 1
NETWORK, SOURCE, TARGET = "network.", "source_features", ("target_features", "target_logits")
PLAIN = ("n_features_in_", "n_iter_", "report_", "_n_features_out", "target_given_")
"""Fitted attributes that JSON holds as they are."""


def write_estimator(estimator: BaseEstimator, path: Path) -> None:
    """Write a fitted estimator."""
    check_is_fitted(estimator)
    model: TrainedModel = estimator.model_
    names = getattr(estimator, "feature_names_in_", None)
    backbone = estimator.backbone
    about = {
        "format": FORMAT,
        "estimator": type(estimator).__name__,
        "parameters": {name: _told(name, value) for name, value in estimator.get_params(deep=False).items()},
        "fitted": {name: getattr(estimator, name) for name in PLAIN},
        "classes": {"values": estimator.classes_.tolist(), "dtype": estimator.classes_.dtype.str},
        "columns": None if names is None else names.tolist(),
        "architecture": asdict(model.architecture),
        "rows_at_once": model.rows_at_once,
        **({} if backbone is None else {"backbone": asdict(module_origin(backbone))}),
    }
    try:
        text = json.dumps(about, default=_plain)
    except TypeError as error:
        raise ValueError(
            f"The estimator cannot be saved: {error}. Expected parameters and classes of numbers, text and tables."
        ) from error
    tensors = {f"{NETWORK}{name}": value.contiguous() for name, value in model.network.state_dict().items()}
    tensors[SOURCE] = torch.from_numpy(np.ascontiguousarray(estimator.source_features_))
    if estimator.target_outputs_ is not None:
        arrays = zip(TARGET, estimator.target_outputs_, strict=True)
        tensors |= {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays}
    about = json.loads(text)
    write_atomically(path, packed(tensors, {KEY: json.dumps({**about, SEAL: _checksum(about, tensors)})}))


def read_estimator(
    path: Path, kinds: dict[str, type[BaseEstimator]], backbone: nn.Module | None = None
) -> BaseEstimator:
    """The estimator in a file, of one of these classes by their names; with the `backbone` it had, if it had one."""
    if not path.is_file():
        raise ValueError(f"No estimator at {path}: expected a file that save wrote.")
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(KEY)
            if text is None:
                raise ValueError("it holds tensors, but no estimator")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
        about = json.loads(text)
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']}, expected {FORMAT}: another version of tsadapt wrote it")
        if about.pop(SEAL) != _checksum(about, tensors):
            raise ValueError("it is damaged, its content does not match its checksum")
        if about["estimator"] not in kinds:
            raise ValueError(f"it holds a {about['estimator']}, expected {' or '.join(kinds)}")
        return _restored(kinds[about["estimator"]], about, tensors, backbone)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{path} cannot be loaded as an estimator: {said}.") from error


def _restored(
    cls: type[BaseEstimator], about: dict[str, Any], tensors: dict[str, torch.Tensor], backbone: nn.Module | None
) -> BaseEstimator:
    _check_backbone(backbone, about.get("backbone"))
    estimator = cls(**{name: _given(name, value) for name, value in about["parameters"].items()})
    estimator.backbone = backbone
    architecture = Architecture(**about["architecture"])
    network = build(architecture).double() if backbone is None else build(architecture, backbone=copy_of(backbone))
    weights = {name.removeprefix(NETWORK): value for name, value in tensors.items() if name.startswith(NETWORK)}
    network.load_state_dict(weights)
    estimator.classes_ = np.array(about["classes"]["values"], dtype=about["classes"]["dtype"])
    names = tuple(map(str, estimator.classes_))
    if architecture.classes != len(names):
        raise ValueError(f"it has {len(names)} classes, but a network for {architecture.classes}")
    estimator.model_ = TrainedModel(network.eval(), names, architecture, rows_at_once=about["rows_at_once"])
    estimator.source_features_ = tensors[SOURCE].numpy()
    known = all(name in tensors for name in TARGET)
    estimator.target_outputs_ = tuple(tensors[name].numpy() for name in TARGET) if known else None
    for name in PLAIN:
        setattr(estimator, name, about["fitted"].get(name))
    if about["columns"] is not None:
        estimator.feature_names_in_ = np.array(about["columns"], dtype=object)
    return estimator


def _check_backbone(backbone: nn.Module | None, saved: dict[str, str] | None) -> None:
    """The backbone is the saved one, but for its weights, which come from the file."""
    if saved is None and backbone is not None:
        raise ValueError("it has no backbone, leave it out")
    if saved is None:
        return
    if backbone is None:
        raise ValueError(f"it has a backbone, {saved['function']}, whose code it does not hold: add backbone=module")
    if asdict(module_origin(backbone)) != saved:
        raise ValueError(f"its backbone is another {saved['function']} than the {type(backbone).__qualname__} given")


def _checksum(about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> str:
    whole = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        whole.update(repr((name, tuple(tensor.shape), tensor.dtype)).encode() + tensor.numpy().tobytes())
    return whole.hexdigest()


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} {value!r} is no number, text or table")


def _told(name: str, value: Any) -> Any:
    """A parameter as JSON has it: a generator by its state, a tuple as a list, a mapping as a table, no backbone."""
    if name == "backbone":
        return None
    if name == "random_state" and isinstance(value, np.random.RandomState):
        return value.get_state(legacy=False)
    if name in ("class_prior", "term_settings", "term_weight") and value is not None and not isinstance(value, str):
        return dict(value)
    return list(value) if name == "target_terms" and value is not None else value


def _given(name: str, value: Any) -> Any:
    if name == "random_state" and isinstance(value, dict):
        generator = np.random.RandomState()
        generator.set_state({**value, "state": {**value["state"], "key": np.array(value["state"]["key"], np.uint32)}})
        return generator
    return tuple(value) if name == "target_terms" and value is not None else value
