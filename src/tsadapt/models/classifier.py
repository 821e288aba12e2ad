"""The one shape every network has here: input scaling → backbone → bottleneck → one or several heads.

Shapes: B samples, K features, C classes.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from tsadapt.core.buffers import PreciseBuffers

__all__ = ["Classifier", "HeadOutput", "InputScaling"]


class InputScaling(PreciseBuffers):
    """(x − mean)/scale, with buffers that are saved with the network: what comes in is raw data.

    Rows in float64 are scaled in float64: numbers of the size of Unix times have no digits left in float32.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor | float, scale: Tensor | float) -> None:
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float64))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Raw pixels (uint8) or features, scaled, in float32, or in float64 if that is how they come."""
        if x.dtype == torch.float64:
            return (x - self.mean) / self.scale
        return (x.float() - self.mean.float()) / self.scale.float()

    @classmethod
    def of_pixels(cls) -> "InputScaling":
        """Pixels from 0…255 to −1…1."""
        return cls(127.5, 127.5)

    @classmethod
    def of_images(cls, mean: tuple[float, ...], std: tuple[float, ...]) -> "InputScaling":
        """Pixels from 0…255 normalised for each channel, by mean and deviation of pixels from 0…1."""
        return cls(255 * torch.tensor(mean)[:, None, None], 255 * torch.tensor(std)[:, None, None])

    @classmethod
    def of_rows(cls, x: Tensor) -> "InputScaling":
        """Features of mean 0 and deviation 1 over the rows of `x` (the source's); a constant one is only centred."""
        deviation = x.double().std(0, correction=0)
        scale = torch.where(deviation > 0, deviation, 1.0)
        return cls(x.double().mean(0).to(x.dtype), scale.to(x.dtype))


class HeadOutput(NamedTuple):
    """The features that go into a head's last, linear layer, and its logits."""

    features: Tensor
    logits: Tensor


class Classifier(nn.Module):
    """A network that gives features f (B, K) and logits (B, C).

    With one head the logits are W f + b. `branches` make it a network of several heads, each of layers of its own
    between f and its linear layer; their mean logits predict. `head_dim` are the features of a linear layer: what TSA
    calls the features of that head. `dropout` acts right before the linear layers, and TSA's features are those before
    it. `pretrained` says whether the backbone learns at a tenth of the others' rate, as the paper does with one that
    has been trained already. `scaling` takes raw data; what it holds is not trained.
    """

    def __init__(
        self,
        scaling: nn.Module,
        backbone: nn.Module,
        bottleneck: nn.Module,
        dim: int,
        classes: int,
        *,
        dropout: float = 0.0,
        pretrained: bool = False,
        branches: Iterable[nn.Module] = (),
        head_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.scaling, self.backbone, self.bottleneck = scaling, backbone, bottleneck
        self.dropout = nn.Dropout(dropout)
        self.branches = nn.ModuleList([*branches] or [nn.Identity()])
        self.dim, self.head_dim, self.classes, self.pretrained = dim, head_dim or dim, classes, pretrained
        self.heads = nn.ModuleList(nn.Linear(self.head_dim, classes) for _ in self.branches)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features and combined logits of raw input."""
        features = self.features(x)
        return features, self.combined([head.logits for head in self.classify(features)])

    def features(self, x: Tensor) -> Tensor:
        """The features f that go into the heads."""
        return self.extracted(x, self.backbone, self.bottleneck)

    def extracted(self, x: Tensor, backbone: nn.Module, bottleneck: nn.Module) -> Tensor:
        """The same by another backbone and bottleneck, on inputs scaled as the network's."""
        scaled = self.scaling(x).to(self.head.weight.dtype)
        f: Tensor = bottleneck(backbone(scaled))
        return f

    def classify(self, features: Tensor) -> list[HeadOutput]:
        """What every head makes of features (B, K)."""
        out = []
        for branch, head in zip(self.branches, self.heads, strict=True):
            inner = branch(features)
            out.append(HeadOutput(inner, head(self.dropout(inner))))
        return out

    def combined(self, logits: Sequence[Tensor]) -> Tensor:
        """The logits that predict: the mean over the heads, whose argmax is that of their sum."""
        return logits[0] if len(logits) == 1 else torch.stack([*logits]).mean(0)

    @property
    def head(self) -> nn.Linear:
        """The linear layer of the only, or first, head."""
        return self.linear_layers[0]

    @property
    def linear_layers(self) -> list[nn.Linear]:
        """The last layer of every head."""
        return cast("list[nn.Linear]", [*self.heads])

    def parameter_groups(self, lr: float) -> list[dict[str, object]]:
        """Parameters with their learning rates: backbone ×0.1 if it was trained before, all else ×1."""
        slow = [*self.backbone.parameters()] if self.pretrained else []
        known = {id(p) for p in slow}
        known |= {id(p) for p in self.scaling.parameters()}
        rest = [p for p in self.parameters() if id(p) not in known]
        return [{"params": slow, "lr": 0.1 * lr}, {"params": rest, "lr": lr}] if slow else [{"params": rest, "lr": lr}]
