"""RUN/model: the weights alone, and beside them what is needed to use them. Loading never runs code."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from tsadapt.data.transforms import Framing
from tsadapt.errors import UserError
from tsadapt.files import write_atomically, write_json
from tsadapt.models.backbones import Backbone, make_backbone
from tsadapt.models.build import Architecture, build
from tsadapt.models.classifier import Classifier
from tsadapt.models.features import cache_root
from tsadapt.models.preprocessing import Eyes

__all__ = ["SavedModel", "Which", "candidate_folder", "load_model", "save_model"]

BACKBONE = "backbone.safetensors"


@dataclass(frozen=True)
class SavedModel:
    """A trained network with its classes, its architecture, the names of a table's columns, and how it sees images."""

    model: Classifier
    classes: tuple[str, ...]
    architecture: Architecture
    columns: tuple[str, ...] | None
    eyes: Eyes | None = None


def save_model(folder: Path, saved: SavedModel) -> None:
    """Write model.safetensors, a frozen backbone's backbone.safetensors, and model.json with all the rest."""
    eyes = saved.eyes
    said: dict[str, Any] = {"classes": saved.classes, "columns": saved.columns}
    if eyes is not None:
        fields = {key: value for key, value in vars(eyes.backbone).items() if key != "module"}
        images = {"backbone": fields, "framing": asdict(eyes.framing)}
        said["images"] = {**images, "frozen": eyes.frozen, "ten_crop": eyes.ten_crop}
        if eyes.frozen:
            _save_backbone(folder / BACKBONE, eyes.backbone)
    write_atomically(folder / "model.safetensors", _packed(saved.model))
    write_json(folder / "model.json", {**said, "architecture": asdict(saved.architecture)})


def _packed(module: nn.Module) -> bytes:
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()})


def _save_backbone(path: Path, backbone: Backbone) -> None:
    """The weights of a frozen backbone: one file in the cache, of which every run that uses it has a hard link."""
    shared = cache_root() / "backbones" / f"{backbone.fingerprint()}.safetensors"
    try:
        if not shared.exists():
            write_atomically(shared, _packed(backbone.module))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.link(shared, path)
    except OSError:  # no cache, or on another disk
        write_atomically(path, _packed(backbone.module))


Which = Literal["last", "selected"]
"""Which model of a run: of its last step, or of the step that validators selected."""


def candidate_folder(run: Path, step: int) -> Path:
    """Where the model of a candidate is put that is not the last step, whose model is in RUN/model."""
    return run / "candidates" / f"step-{step:09d}"


def load_model(run: Path, device: torch.device, which: Which = "last") -> SavedModel:
    """The network of a run folder; a sweep's folder stands for what was chosen there, run and step."""
    if not run.is_dir():
        raise UserError(f"No run at {run}: expected the folder that fit or sweep wrote (its --out).")
    step = None
    if (run / "choice.json").is_file():
        choice = _read(run / "choice.json", ("run", "step"))
        run, step = run / str(choice["run"]), choice["step"]
    elif which == "selected" and (run / "metrics.json").is_file():
        metrics = _read(run / "metrics.json", ("last",))
        if "selected" not in metrics:
            raise UserError(f"{run} had one candidate, its last step. To select among several: fit --candidates 5.")
        step = metrics["selected"]["step"]
    folder = run / "model"
    if step is not None and candidate_folder(run, step).exists():
        folder = candidate_folder(run, step)
    if not (folder / "model.json").is_file():
        hint = ""
        if (run / "config.toml").exists():
            hint = " It was not trained to its end: give the same fit command again."
        elif (run / "runs").is_dir():
            hint = " It is a sweep that was not brought to its end: give the same sweep command again."
        raise UserError(f"No trained model in {run}: expected {folder / 'model.safetensors'}.{hint}")
    try:
        said = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        architecture = Architecture(**said["architecture"])
        eyes = None if said.get("images") is None else _eyes(said["images"], folder)
        model = build(architecture, backbone=None if eyes is None or eyes.frozen else eyes.backbone)
        model.load_state_dict(load_file(folder / "model.safetensors"))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise UserError(f"The model in {folder} cannot be loaded: {str(error).splitlines()[0]}") from error
    columns = said.get("columns")
    return SavedModel(model.to(device).eval(), tuple(said["classes"]), architecture, columns and tuple(columns), eyes)


def _read(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    """A JSON file of ours."""
    try:
        said: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if all(key in said for key in keys):
            return said
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from error
    raise UserError(f"{path} is not what tsadapt writes: expected {', '.join(keys)} in it.")


def _eyes(said: dict[str, Any], folder: Path) -> Eyes:
    """How the model sees images; the weights of a backbone that is trained with it are the model's own."""
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in said["backbone"].items()
    }
    module = make_backbone(fields["name"], "none", fields["size"]).module
    if said["frozen"]:
        module.load_state_dict(load_file(folder / BACKBONE))
    return Eyes(Backbone(module=module, **fields), Framing(**said["framing"]), said["frozen"], said["ten_crop"])
