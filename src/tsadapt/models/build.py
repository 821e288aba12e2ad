"""Which network suits the data, and how it is made."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from tsadapt.errors import UserError, unknown
from tsadapt.models.backbones import Backbone
from tsadapt.models.classifier import Classifier, InputScaling
from tsadapt.models.digits import DIGIT_NETWORKS, DigitNetwork

__all__ = ["Architecture", "build", "network_for", "network_names"]

VECTOR_NETWORKS = ("mlp", "linear", "moons")


@dataclass(frozen=True)
class Architecture:
    """All that is needed to make a network again, before its weights are loaded.

    `inputs` are the features that go into it, or out of its backbone.
    """

    network: str
    classes: int
    inputs: int
    bottleneck: int | None = None
    heads: int = 1


def network_names() -> list[str]:
    """Every network there is."""
    return [*DIGIT_NETWORKS, *VECTOR_NETWORKS]


def network_for(source: str, target: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> str:
    """The network that suits two domains of small images: by the protocol for digits, else by their shape.

    >>> network_for("digits:svhn", "digits:mnist", ((3, 32, 32), (1, 28, 28)))
    'mcd-32'
    """
    if {source, target} <= {"digits:uci", "digits:mnist-5k"}:
        return "small-16"
    if source.startswith("digits:") and target.startswith("digits:"):
        return "mcd-32" if any(shape[0] == 3 for shape in shapes) else "mcd-28"
    if any(shape[0] == 3 for shape in shapes):
        return "dtn"
    return "small-16" if max(max(shape[1:]) for shape in shapes) <= 16 else "mcd-28"


def build(architecture: Architecture, rows: Tensor | None = None, backbone: Backbone | None = None) -> Classifier:
    """The network, with fresh weights from torch's generator; `rows` (the source's) set the scaling of vectors.

    A `backbone` becomes part of it, and is trained with it.
    """
    name, classes = architecture.network, architecture.classes
    if name in DIGIT_NETWORKS:
        return _digit_network(DIGIT_NETWORKS[name], architecture)
    if name not in VECTOR_NETWORKS:
        raise UserError(unknown("network", name, network_names()))
    k, before, pretrained = architecture.inputs, cast("nn.Module", nn.Identity()), False
    if backbone is not None:
        scaling = InputScaling.of_images(backbone.mean, backbone.std)
        before, pretrained = ChannelsLast(backbone.module), backbone.trained
    else:
        scaling = InputScaling(torch.zeros(k), torch.ones(k)) if rows is None else InputScaling.of_rows(rows)
    if name == "linear":
        if architecture.heads > 1:
            raise UserError("The network 'linear' has one head: a method with several needs the network 'mlp'.")
        return Classifier(scaling, before, nn.Identity(), k, classes, pretrained=pretrained)
    if name == "moons":
        return _moons(scaling, architecture)
    dim = architecture.bottleneck or 256
    bottleneck = nn.Sequential(nn.Linear(k, dim), nn.BatchNorm1d(dim), nn.ReLU())
    if architecture.heads == 1:
        return Classifier(scaling, before, bottleneck, dim, classes, pretrained=pretrained)
    inner = max(dim // 2, 2)
    branches = [_branch(dim, inner) for _ in range(architecture.heads)]
    return Classifier(
        scaling, before, bottleneck, dim, classes, dropout=0.5, pretrained=pretrained, branches=branches, head_dim=inner
    )


def _moons(scaling: InputScaling, architecture: Architecture) -> Classifier:
    """Three layers of 15 features, for two moons; the last normalisation has no scale, so TSA stays finite."""
    dim = architecture.bottleneck or 15
    first = [layer for inputs in (architecture.inputs, dim) for layer in _normalised(inputs, dim)]
    bottleneck = nn.Sequential(*first, nn.Linear(dim, dim), nn.BatchNorm1d(dim, affine=False), nn.ReLU())
    if architecture.heads > 1:
        raise UserError("The network 'moons' has one head: a method with several needs the network 'mlp'.")
    return Classifier(scaling, nn.Identity(), bottleneck, dim, architecture.classes)


def _branch(dim: int, inner: int) -> nn.Module:
    """The layers of one of several heads before its linear one (JADA: 256 → 128 → 128).

    Normalised, unlike JADA's own: TSA needs features of a bounded scale, or its terms may overflow.
    """
    return nn.Sequential(*_normalised(dim, inner), nn.Dropout(), *_normalised(inner, inner))


def _normalised(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()


def _digit_network(network: DigitNetwork, architecture: Architecture) -> Classifier:
    """A digit network; with several heads, each has one more layer of its own on top of the bottleneck."""
    body, heads = network.make(), architecture.heads
    branches = [nn.Sequential(*_normalised(body.dim, body.dim)) for _ in range(heads)] if heads > 1 else []
    return Classifier(
        InputScaling.of_pixels(), body.backbone, body.bottleneck, body.dim, architecture.classes, dropout=body.dropout,
        branches=branches,
    )  # fmt: skip


class ChannelsLast(nn.Module):
    """A convolutional network whose images lie with their channels last in memory, which is faster."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, K) of images (B, 3, H, W)."""
        f: Tensor = self.body(x.contiguous(memory_format=torch.channels_last))
        return f
