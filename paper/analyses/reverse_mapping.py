"""From a feature back to an image (the paper's supplement, "Reverse Mapping Algorithm").

Stage 1: z′ = argmin ‖F(G(z)) − F(x_s)‖² + α ‖G(z) − x_s‖², the best of several restarts.
Stage 2: z* = argmin ‖F(G(z)) − F_aug‖², from z′. G(z*) shows what F_aug looks like.

G and F are frozen and in evaluation mode, so the images of a batch do not touch each other.
Shapes: B images (B, channels, 32, 32) from −1 to 1, features (B, K), z (B, 128).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from paper.analyses.wgan_gp import LATENT, SIZE, Generator, frozen
from tsadapt.models.classifier import Classifier

__all__ = ["Extractor", "Mapped", "Search", "reconstruct", "search_feature"]

Optimizer = Literal["sgd", "adam"]


@dataclass(frozen=True)
class Search:
    """How z is searched: SGD with momentum 0.9 as in the paper, or Adam; each row stops when it is flat.

    A row is flat when its best loss fell by less than the share `flat` in the last `window` steps. `lr` is the rate for
    the loss divided by the variance of what it looks at over random z, so that it does not depend on its scale.
    """

    steps: int = 600
    lr: float = 0.5
    optimizer: Optimizer = "sgd"
    window: int = 50
    flat: float = 1e-3

    def __post_init__(self) -> None:
        if self.optimizer not in get_args(Optimizer):
            raise ValueError(f"optimizer is {self.optimizer!r}, expected 'sgd' or 'adam'.")
        if self.steps < 0 or self.window < 1 or not self.lr > 0:
            raise ValueError(f"{self}: expected steps of 0 or more, a window of 1 or more and a positive lr.")


class Extractor:
    """A trained network's features and classes of images from −1 to 1 at 32×32, differentiable in the images.

    It works on a frozen copy: the network that was given is left as it is. Images are resized to the network's `size`.
    """

    def __init__(self, model: Classifier, size: int) -> None:
        self.model, self.size = frozen(model), size

    def features(self, images: Tensor) -> Tensor:
        """F (B, K)."""
        pixels = (images + 1) * 127.5
        if self.size != SIZE:
            pixels = F.interpolate(pixels, (self.size, self.size), mode="bilinear", align_corners=False, antialias=True)
        return self.model.features(pixels)

    @torch.no_grad()
    def classes(self, features: Tensor) -> Tensor:
        """The class (B,) that the network makes of features (B, K)."""
        return self.model.combined([head.logits for head in self.model.classify(features)]).argmax(1)


@dataclass(frozen=True)
class Mapped:
    """The z found for each of B goals, its image, its loss before and after, and all losses on the way (steps + 1, B).

    The loss after is the lowest that was met, the way need not end there.
    """

    z: Tensor
    images: Tensor
    first: Tensor
    last: Tensor
    history: Tensor

    def take(self, rows: Tensor) -> "Mapped":
        """Some of the B."""
        return Mapped(self.z[rows], self.images[rows], self.first[rows], self.last[rows], self.history[:, rows])


def reconstruct(
    generator: Generator, extractor: Extractor, images: Tensor, alpha: float, search: Search, restarts: int,
    seed: int = 0, *, start: Tensor | None = None, goal: Tensor | None = None,
) -> Mapped:  # fmt: skip
    """Stage 1: of `restarts` random beginnings for each image the best end; or from `start` (B, 128).

    `goal` (B, K) are the images' features where they are known, as those of images that were resized to 32×32.
    """
    if restarts < 1:
        raise ValueError(f"restarts is {restarts}, expected 1 or more.")
    b, copies = len(images), restarts if start is None else 1
    if start is None:
        start = torch.randn(b * copies, LATENT, generator=torch.Generator().manual_seed(seed))
    if goal is None:
        with torch.no_grad():
            goal = extractor.features(images)
    weight = alpha**0.5

    def seen(made: Tensor) -> Tensor:
        return torch.cat([extractor.features(made), weight * made.flatten(1)], 1)

    wanted = torch.cat([goal, weight * images.flatten(1)], 1).repeat_interleave(copies, 0)
    found = _descend(generator, start, seen, wanted, search)
    return found.take(found.last.view(b, copies).argmin(1) + copies * torch.arange(b))


def search_feature(generator: Generator, extractor: Extractor, goal: Tensor, start: Tensor, search: Search) -> Mapped:
    """Stage 2: from z′ (B, 128) to an image whose features are `goal` (B, K); where F(G(z′)) is that, it stays."""
    return _descend(generator, start, extractor.features, goal, search)


def _descend(
    generator: Generator, start: Tensor, seen: Callable[[Tensor], Tensor], goal: Tensor, search: Search
) -> Mapped:  # fmt: skip
    """Minimise ‖seen(G(z)) − goal‖² in z, each row for itself; of all z it met before it was flat, the best is kept."""
    generator = frozen(generator)
    unit = _variance(generator, seen)
    z = start.clone().requires_grad_()
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD([z], lr=search.lr, momentum=0.9)
        if search.optimizer == "sgd"
        else torch.optim.Adam([z], lr=search.lr)
    )
    best_z, best = start.clone(), torch.full((len(start),), torch.inf)
    done = torch.zeros(len(start), dtype=torch.bool)
    losses, bests = list[Tensor](), list[Tensor]()
    for step in range(search.steps + 1):
        each = (seen(generator(z)) - goal).square().sum(1)
        losses.append(each.detach())
        better = (losses[-1] < best) & ~done
        best_z[better], best = z.detach()[better], torch.where(better, losses[-1], best)
        bests.append(best)
        done |= best == 0
        if step >= search.window:
            done |= best > (1 - search.flat) * bests[step - search.window]
        if step == search.steps or done.all():
            break
        (z.grad,) = torch.autograd.grad(each.sum() / unit, z)
        optimizer.step()
    with torch.no_grad():
        return Mapped(best_z, generator(best_z), losses[0], best, torch.stack(losses))


@torch.no_grad()
def _variance(generator: Generator, seen: Callable[[Tensor], Tensor]) -> float:
    """E ‖s − E s‖² of s = seen(G(z)) over some z: the square of how far it goes as z does."""
    z = torch.randn(64, LATENT, generator=torch.Generator().manual_seed(0))
    return float(seen(generator(z)).var(0, correction=0).sum()) or 1.0
