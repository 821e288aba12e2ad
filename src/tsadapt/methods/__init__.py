"""Methods and source terms: what is minimised. One file a method, registered in `METHODS` by its decorator."""

from tsadapt.methods import source_only
from tsadapt.methods.base import METHODS, Head, Method, Outputs, View

__all__ = ["METHODS", "Head", "Method", "Outputs", "View", "source_only"]
