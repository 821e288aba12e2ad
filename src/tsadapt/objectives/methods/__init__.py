"""Methods and source terms: what is minimised. One file a method; every file of this folder is imported here."""

from importlib import import_module
from pkgutil import iter_modules

from tsadapt.objectives.base import METHODS, Head, Method, Outputs, Setting, Step, View

__all__ = ["METHODS", "Head", "Method", "Outputs", "Setting", "Step", "View"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
