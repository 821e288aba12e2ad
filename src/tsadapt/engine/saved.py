"""RUN/model: the weights alone, and beside them what is needed to use them. Loading never runs code."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from tsadapt.engine.files import write_atomically, write_json
from tsadapt.errors import UserError
from tsadapt.models.build import Architecture, build
from tsadapt.models.classifier import Classifier

__all__ = ["SavedModel", "load_model", "save_model"]


@dataclass(frozen=True)
class SavedModel:
    """A trained network with its classes and architecture."""

    model: Classifier
    classes: tuple[str, ...]
    architecture: Architecture
    columns: tuple[str, ...] | None


def save_model(
    folder: Path,
    model: Classifier,
    classes: tuple[str, ...],
    architecture: Architecture,
    columns: tuple[str, ...] | None,
) -> None:
    """Write model.safetensors, and model.json with the classes and the names of a table's columns."""
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_atomically(folder / "model.safetensors", save(weights))
    write_json(folder / "model.json", {"classes": classes, "columns": columns, "architecture": asdict(architecture)})


def load_model(run: Path, device: torch.device) -> SavedModel:
    """The network of a run folder."""
    folder = run / "model"
    if not (folder / "model.json").is_file():
        hint = (
            " It was not trained to its end: give the same fit command again." if (run / "config.toml").exists() else ""
        )
        raise UserError(f"No trained model in {run}: expected {folder / 'model.safetensors'}.{hint}")
    try:
        said = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        architecture = Architecture(**said["architecture"])
        model = build(architecture)
        model.load_state_dict(load_file(folder / "model.safetensors"))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise UserError(f"The model in {folder} cannot be loaded: {str(error).splitlines()[0]}") from error
    columns = said.get("columns")
    return SavedModel(model.to(device).eval(), tuple(said["classes"]), architecture, columns and tuple(columns))
