"""Which network suits the data, and how it is made."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tsadapt.errors import UserError, unknown
from tsadapt.models.classifier import Classifier, InputScaling
from tsadapt.models.digits import DIGIT_NETWORKS

__all__ = ["Architecture", "build", "network_for", "network_names"]

VECTOR_NETWORKS = ("mlp", "linear")


@dataclass(frozen=True)
class Architecture:
    """All that is needed to make a network again, before its weights are loaded."""

    network: str
    classes: int
    inputs: int
    bottleneck: int | None = None


def network_names() -> list[str]:
    """Every network there is."""
    return [*DIGIT_NETWORKS, *VECTOR_NETWORKS]


def network_for(source: str, target: str, kind: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> str:
    """The network that suits two domains: by the protocol for digits, else by the shape of the rows.

    >>> network_for("digits:svhn", "digits:mnist", "image", ((3, 32, 32), (1, 28, 28)))
    'mcd-32'
    >>> network_for("a.npz", "b.npz", "vector", ((1280,), (1280,)))
    'mlp'
    """
    if kind == "vector":
        return "mlp"
    if {source, target} <= {"digits:uci", "digits:mnist-5k"}:
        return "small-16"
    if source.startswith("digits:") and target.startswith("digits:"):
        return "mcd-32" if any(shape[0] == 3 for shape in shapes) else "mcd-28"
    if any(shape[0] == 3 for shape in shapes):
        return "dtn"
    return "small-16" if max(max(shape[1:]) for shape in shapes) <= 16 else "mcd-28"


def build(architecture: Architecture, rows: Tensor | None = None) -> Classifier:
    """The network, with fresh weights from torch's generator; `rows` (the source's) set the scaling of vectors."""
    name, classes = architecture.network, architecture.classes
    if name in DIGIT_NETWORKS:
        body = DIGIT_NETWORKS[name].make()
        scaling = InputScaling.of_pixels()
        return Classifier(scaling, body.backbone, body.bottleneck, body.dim, classes, dropout=body.dropout)
    if name not in VECTOR_NETWORKS:
        raise UserError(unknown("network", name, network_names()))
    k = architecture.inputs
    scaling = InputScaling(torch.zeros(k), torch.ones(k)) if rows is None else InputScaling.of_rows(rows)
    if name == "linear":
        return Classifier(scaling, nn.Identity(), nn.Identity(), k, classes)
    dim = architecture.bottleneck or 256
    bottleneck = nn.Sequential(nn.Linear(k, dim), nn.BatchNorm1d(dim), nn.ReLU())
    return Classifier(scaling, nn.Identity(), bottleneck, dim, classes)
