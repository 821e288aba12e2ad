"""From a feature back to an image (the paper's supplement, "Reverse Mapping Algorithm").

Stage 1: z′ = argmin ‖F(G(z)) − F(x_s)‖² + α ‖G(z) − x_s‖², the best of several restarts.
Stage 2: z* = argmin ‖F(G(z)) − F_aug‖², from z′. G(z*) shows what F_aug looks like.

G and F are frozen and in evaluation mode, so the images of a batch do not touch each other.
Shapes: B images (B, channels, 32, 32) from −1 to 1, features (B, K), z (B, 128).
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.analysis.wgan_gp import LATENT, SIZE, Generator
from tsadapt.models.classifier import Classifier

__all__ = ["Extractor", "Mapped", "Search", "reconstruct", "search_feature"]

Optimizer = Literal["sgd", "adam"]


@dataclass(frozen=True)
class Search:
    """How z is searched: SGD with momentum 0.9 as in the paper, or Adam; it stops when flat.

    Flat is when the loss of a window of `window` steps is less than `flat` (a share) below that of the window before.
    """

    steps: int = 600
    lr: float = 0.02
    optimizer: Optimizer = "sgd"
    window: int = 50
    flat: float = 1e-3


class Extractor:
    """A trained network's features and logits of images from −1 to 1 at 32×32, differentiable in the images."""

    def __init__(self, model: Classifier, size: int) -> None:
        self.model, self.size = model.eval().requires_grad_(False), size

    def features(self, images: Tensor) -> Tensor:
        """F (B, K)."""
        return self.model.features(self._pixels(images))

    def classes(self, images: Tensor) -> Tensor:
        """The class that the network sees (B,)."""
        with torch.no_grad():
            guess: Tensor = self.model(self._pixels(images))[1].argmax(1)
        return guess

    def _pixels(self, images: Tensor) -> Tensor:
        pixels = (images + 1) * 127.5
        if self.size != SIZE:
            pixels = F.interpolate(pixels, (self.size, self.size), mode="bilinear", align_corners=False, antialias=True)
        return pixels


@dataclass(frozen=True)
class Mapped:
    """The z that was found for each of B goals, its image, its loss before and after, and the summed loss by step."""

    z: Tensor
    images: Tensor
    first: Tensor
    last: Tensor
    history: list[float]


def reconstruct(
    generator: Generator, extractor: Extractor, images: Tensor, alpha: float, search: Search, restarts: int,
    seed: int = 0, start: Tensor | None = None,
) -> Mapped:  # fmt: skip
    """Stage 1: of `restarts` random beginnings for each image the best end; or from `start` (B, 128)."""
    with torch.no_grad():
        goal = extractor.features(images)
    b = len(images)
    if start is None:
        random = torch.Generator().manual_seed(seed)
        start, copies = torch.randn(b * restarts, LATENT, generator=random), restarts
    else:
        copies = 1
    wanted, pixels = goal.repeat_interleave(copies, 0), images.repeat_interleave(copies, 0)

    def loss(made: Tensor) -> Tensor:
        return _distance(extractor.features(made), wanted) + alpha * _distance(made, pixels)

    found = _descend(generator, start, loss, search)
    best = found.last.view(b, copies).argmin(1) + copies * torch.arange(b)
    return Mapped(found.z[best], found.images[best], found.first[best], found.last[best], found.history)


def search_feature(generator: Generator, extractor: Extractor, goal: Tensor, start: Tensor, search: Search) -> Mapped:
    """Stage 2: from z′ (B, 128) to an image whose features are `goal` (B, K)."""
    return _descend(generator, start, lambda made: _distance(extractor.features(made), goal), search)


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """‖a − b‖² of each row."""
    return (a - b).flatten(1).square().sum(1)


def _descend(generator: Generator, start: Tensor, loss: object, search: Search) -> Mapped:
    """Follow the gradient in z, each row for itself; of all z met, the best of each row is kept."""
    assert callable(loss)
    z = start.clone().requires_grad_()
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD([z], lr=search.lr, momentum=0.9)
        if search.optimizer == "sgd"
        else torch.optim.Adam([z], lr=search.lr)
    )
    history: list[float] = []
    best_z, best = start.clone(), torch.full((len(start),), torch.inf)
    first = best
    for step in range(search.steps + 1):
        each = loss(generator(z))
        now = each.detach()
        if step == 0:
            first = now
        better = now < best
        best_z[better], best = z.detach()[better], torch.where(better, now, best)
        history.append(float(best.sum()))
        if step == search.steps or _flat(history, search):
            break
        optimizer.zero_grad()
        (each / first.clamp_min(1e-12)).sum().backward()  # relative to its beginning: rows of any scale move alike
        optimizer.step()
    with torch.no_grad():
        return Mapped(best_z, generator(best_z), first, best, history)


def _flat(history: list[float], search: Search) -> bool:
    """Whether the last window brought next to nothing."""
    if history[-1] == 0:
        return True
    w = search.window
    if len(history) <= 2 * w:
        return False
    return history[-1] > (1 - search.flat) * history[-1 - w]
