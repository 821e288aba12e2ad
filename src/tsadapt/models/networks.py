"""Networks by name: what each takes, how it is made, and the settings that suit it.

The digit networks are those of MCD (Saito et al., 2018) and CDAN (Long et al., 2018), and a small one for 16×16. What
MCD calls the classifier is a stack of layers; its last one is our head and the rest our bottleneck, so that the head is
linear in the features. MCD applies ReLU before it pools: the other way round gives the same bits, with a quarter of
ReLU's work.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tsadapt.data.transforms import ImageShape
from tsadapt.errors import UserError
from tsadapt.models.backbones import Backbone, channels_last
from tsadapt.models.classifier import Classifier, InputScaling
from tsadapt.models.stages import Stem, cut_before
from tsadapt.registry import Registry

__all__ = [
    "NETWORKS",
    "STAGE_LENGTH",
    "TRAINED_BACKBONE",
    "TRAINED_LENGTH",
    "Architecture",
    "Body",
    "Length",
    "Network",
    "build",
    "network_for",
]

DIGITS: dict[str, Any] = {"batch_size": 64, "lr": 0.01, "weight_decay": 5e-4}
VECTORS: dict[str, Any] = {"batch_size": 64, "lr": 0.01, "weight_decay": 1e-3}
TRAINED_BACKBONE: dict[str, Any] = {"batch_size": 32, "lr": 0.01, "weight_decay": 1e-3}
"""What suits a backbone that is trained: batch size and weight decay as in TSA's code."""


@dataclass(frozen=True)
class Length:
    """How long a network is trained where nobody says, by rows, classes and batch size; no label of the target counts.

        steps = max(least, passes·n/B, rows_of_class·C/B)

    `plain` is the least number of steps without adaptation, `adapted` with it. The constants are where the accuracy on
    held-out source rows stops rising (`python -m paper length`).

    >>> Length(100, 1000).steps(rows=1670, classes=7, batch=64, adapts=False)  # photographs of PACS: 4 passes
    105
    >>> Length(100, 1000).steps(rows=20_000, classes=1000, batch=64, adapts=True)
    4688
    """

    plain: int
    adapted: int
    passes: int = 4
    rows_of_class: int = 300

    def steps(self, rows: int, classes: int, batch: int, adapts: bool) -> int:
        """Steps for n `rows` (of the larger domain that is trained on), C `classes` and `batch` rows in a step."""
        least = self.adapted if adapts else self.plain
        return max(least, math.ceil(self.passes * rows / batch), math.ceil(self.rows_of_class * classes / batch))


TRAINED_LENGTH = Length(5000, 5000)
"""With the backbone trained."""

STAGE_LENGTH = Length(1000, 1000)
"""With its last stages trained."""


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


@dataclass(frozen=True)
class Body:
    """A network without its linear heads: `dim` features, and dropout before the heads.

    `branch` makes the layers of one of several heads, of `branch_dim` features (None: one head only).
    """

    bottleneck: nn.Module
    dim: int
    backbone: nn.Module | None = None
    dropout: float = 0.0
    branch: Callable[[], nn.Module] | None = None
    branch_dim: int | None = None
    branch_dropout: float | None = None


@dataclass(frozen=True)
class Network:
    """What a network takes (images in memory of some shape, or vectors), how it is made, and what suits it.

    `defaults` are batch size, learning rate and weight decay, `length` gives the steps; `discriminator_width` are the
    hidden features of an adversarial method's discriminator.
    """

    summary: str
    make: Callable[[Architecture], Body]
    defaults: Mapping[str, Any]
    length: Length
    takes: ImageShape | None = None
    discriminator_width: int = 1024


NETWORKS: Registry[Network] = Registry("network")

LONG = Length(3000, 3000)
"""Digit networks of 28×28 pixels and more."""


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


def build(
    architecture: Architecture, rows: Tensor | None = None, backbone: Backbone | nn.Module | None = None
) -> Classifier:
    """The network, with fresh weights from torch's generator; `rows` (the source's) set the scaling of vectors.

    A `backbone` becomes part of it, and is trained with it, or its stages from `train_from` on are. One that is a plain
    module takes rows as they are.
    """
    network = NETWORKS[architecture.network]
    k, heads = architecture.inputs, architecture.heads
    body = network.make(architecture)
    if heads > 1 and body.branch is None:
        raise UserError(f"The network {architecture.network!r} has one head: a method with {heads} needs 'mlp'.")
    before: nn.Module = nn.Identity() if body.backbone is None else body.backbone
    scaling: nn.Module
    if network.takes is not None:
        scaling = InputScaling.of_pixels()
    elif isinstance(backbone, Backbone):
        scaling, before = InputScaling.of_images(backbone.mean, backbone.std), ChannelsLast(backbone.module)
        if backbone.train_from is not None:
            cut = cut_before(backbone, backbone.train_from)
            scaling, before = Stem(scaling, cut, backbone.size), ChannelsLast(cut.after)
    elif backbone is not None:
        scaling, before = InputScaling(0.0, 1.0), backbone
    else:
        scaling = InputScaling(torch.zeros(k), torch.ones(k)) if rows is None else InputScaling.of_rows(rows)
    several: dict[str, Any] = {}
    dropout = body.dropout
    if heads > 1 and body.branch is not None:
        several = {"branches": [body.branch() for _ in range(heads)], "head_dim": body.branch_dim}
        dropout = dropout if body.branch_dropout is None else body.branch_dropout
    return Classifier(
        scaling, before, body.bottleneck, body.dim, architecture.classes, dropout=dropout,
        pretrained=isinstance(backbone, Backbone) and backbone.trained, **several,
    )  # fmt: skip


class ChannelsLast(nn.Module):
    """A network whose images lie with their channels last in memory, which is faster for convolutions."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = channels_last(body)

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, K) of images (B, 3, H, W)."""
        f: Tensor = self.body(x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x)
        return f


def _mlp(architecture: Architecture) -> Body:
    dim = architecture.bottleneck or 256
    inner = max(dim // 2, 2)
    bottleneck = nn.Sequential(*_dense(architecture.inputs, dim))

    def branch() -> nn.Module:
        # JADA's 256 → 128 → 128, but normalised: TSA needs features of a bounded scale, or its terms may overflow.
        return nn.Sequential(*_dense(dim, inner), nn.Dropout(), *_dense(inner, inner))

    return Body(bottleneck, dim, branch=branch, branch_dim=inner, branch_dropout=0.5)


def _linear(architecture: Architecture) -> Body:
    return Body(nn.Identity(), architecture.inputs)


def _moons(architecture: Architecture) -> Body:
    dim = architecture.bottleneck or 15
    first = [layer for inputs in (architecture.inputs, dim) for layer in _dense(inputs, dim)]
    # Without a scale of its own in the last normalisation, TSA stays finite.
    return Body(nn.Sequential(*first, nn.Linear(dim, dim), nn.BatchNorm1d(dim, affine=False), nn.ReLU()), dim)


def _small(architecture: Architecture) -> Body:
    backbone = nn.Sequential(*_pooled(1, 16, 3, padding=1), *_pooled(16, 32, 3, padding=1), nn.Flatten())
    return _digits(backbone, nn.Sequential(*_dense(32 * 4 * 4, 64)), 64)


def _mcd_28(architecture: Architecture) -> Body:
    backbone = nn.Sequential(*_pooled(1, 32, 5), *_pooled(32, 48, 5), nn.Flatten())
    bottleneck = nn.Sequential(nn.Dropout(), *_dense(48 * 4 * 4, 100), nn.Dropout(), *_dense(100, 100))
    return _digits(backbone, bottleneck, 100, dropout=0.5)


def _mcd_32(architecture: Architecture) -> Body:
    def halved(inputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, 64, 5, padding=2), nn.BatchNorm2d(64), nn.MaxPool2d(3, 2, 1), nn.ReLU()]

    backbone = nn.Sequential(
        *halved(3), *halved(64), nn.Conv2d(64, 128, 5, padding=2), nn.BatchNorm2d(128), nn.ReLU(), nn.Flatten(),
        *_dense(8192, 3072), nn.Dropout(),
    )  # fmt: skip
    return _digits(backbone, nn.Sequential(*_dense(3072, 2048)), 2048)


def _lenet(architecture: Architecture) -> Body:
    backbone = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(20, 50, 5), nn.Dropout2d(), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
    )  # fmt: skip
    return _digits(backbone, nn.Sequential(nn.Linear(800, 500), nn.ReLU()), 500, dropout=0.5)


def _dtn(architecture: Architecture) -> Body:
    def strided(inputs: int, outputs: int, dropout: float) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 5, stride=2, padding=2)
        return [convolution, nn.BatchNorm2d(outputs), nn.Dropout2d(dropout), nn.ReLU()]

    backbone = nn.Sequential(*strided(3, 64, 0.1), *strided(64, 128, 0.3), *strided(128, 256, 0.5), nn.Flatten())
    return _digits(backbone, nn.Sequential(*_dense(4096, 512)), 512, dropout=0.5)


def _digits(backbone: nn.Module, bottleneck: nn.Module, dim: int, dropout: float = 0.0) -> Body:
    """A digit network; with several heads, each has one more layer of its own on top of the bottleneck."""
    return Body(bottleneck, dim, backbone, dropout, branch=lambda: nn.Sequential(*_dense(dim, dim)))


def _pooled(inputs: int, outputs: int, kernel: int, padding: int = 0) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, padding=padding)
    return [convolution, nn.BatchNorm2d(outputs), nn.MaxPool2d(2), nn.ReLU()]


def _dense(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]


for _name, _network in {
    "mlp": Network("vectors: Linear – BN – ReLU of --bottleneck features", _mlp, VECTORS, Length(100, 1000)),
    "linear": Network("vectors: the linear head alone", _linear, VECTORS, Length(1000, 1000)),
    "moons": Network("vectors: three layers of 15 features", _moons, {**VECTORS, "lr": 0.1}, Length(500, 500)),
    "small-16": Network(
        "1×16×16: two convolutions, 64 features", _small, {"batch_size": 64, "lr": 0.02, "weight_decay": 1e-3},
        Length(500, 1500, passes=16), ImageShape(1, 16, (28, 20)), 500,
    ),
    "mcd-28": Network("1×28×28: MCD's network for USPS, 100 features", _mcd_28, DIGITS, LONG, ImageShape(1, 28), 500),
    "mcd-32": Network("3×32×32: MCD's network for SVHN, 2,048 features", _mcd_32, DIGITS, LONG, ImageShape(3, 32), 500),
    "lenet": Network("1×28×28: CDAN's LeNet, 500 features", _lenet, DIGITS, LONG, ImageShape(1, 28), 500),
    "dtn": Network("3×32×32: CDAN's DTN, 512 features", _dtn, DIGITS, LONG, ImageShape(3, 32), 500),
}.items():  # fmt: skip
    NETWORKS.register(_name)(_network)
