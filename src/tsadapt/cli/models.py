"""The model that a verb is asked about: a run's, or an exported one, which is used without torch."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tsadapt.errors import UserError

if TYPE_CHECKING:
    from tsadapt.export.exported import ExportedModel
    from tsadapt.runs.model import TrainedModel

__all__ = ["model_at"]


def model_at(
    path: Path, use: Literal["last", "selected"], device: str, adapt_bn: bool, backbone: str | None
) -> "TrainedModel | ExportedModel":
    """The model of a run, or a model.onnx that export wrote; an exported one has no other steps, and stays as it is."""
    from tsadapt.export.exported import ExportedModel, exported_file

    if (file := exported_file(path)) is None:
        from tsadapt.runs.model import load

        return load(path, use, device, quiet=False, backbone=backbone)
    asked = {"--use selected": use != "last", "--adapt-bn": adapt_bn, "--backbone": bool(backbone)}
    if refused := [flag for flag, given in asked.items() if given]:
        raise UserError(f"{refused[0]} needs a RUN: {file} is one model, as it was exported.")
    return ExportedModel(file, device, quiet=False)
