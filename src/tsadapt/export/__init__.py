"""Trained models as files that run elsewhere: `export` writes them, `ExportedModel` uses them without torch.

Both are loaded when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsadapt.export.exported import ExportedModel
    from tsadapt.export.write import Exported, export

__all__ = ["Exported", "ExportedModel", "export"]

_HOME = {"Exported": "write", "ExportedModel": "exported", "export": "write"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"tsadapt.export.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tsadapt.export' has no attribute {name!r}")
