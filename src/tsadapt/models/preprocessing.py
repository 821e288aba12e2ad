"""Data made ready for a network: small images resized, photographs framed, or turned into features once and for all."""

import sys
from dataclasses import dataclass, replace
from functools import partial

import torch

from tsadapt.data.image_loader import grouped, image_pass, workers_here
from tsadapt.data.images import ImageRows, Images
from tsadapt.data.transforms import Framing, ImageShape, fit_images
from tsadapt.data.types import Domain, Unreadable
from tsadapt.errors import UserError, counted
from tsadapt.models.backbones import Backbone
from tsadapt.models.build import Architecture
from tsadapt.models.digits import DIGIT_NETWORKS
from tsadapt.models.features import extract

__all__ = ["Eyes", "Reader", "Ready"]


@dataclass(frozen=True)
class Eyes:
    """How a model sees photographs: by which backbone, framed how; `ten_crop` averages over ten parts of each.

    A frozen backbone is no part of what is trained: the model takes its features. Otherwise the model contains it.
    """

    backbone: Backbone
    framing: Framing
    frozen: bool
    ten_crop: bool = False


@dataclass(frozen=True)
class Ready:
    """A domain as the network takes it: `rows` of the one given, without the images that could not be read."""

    domain: Domain
    rows: list[int]
    unreadable: Unreadable


@dataclass(frozen=True)
class Reader:
    """Makes domains ready for a network of some architecture (and eyes, if it sees photographs)."""

    architecture: Architecture
    eyes: Eyes | None
    device: torch.device
    workers: int | None = None
    quiet: bool = False

    def __call__(self, domain: Domain) -> Ready:
        """The domain in the shape that the network takes; UserError if it is of another kind."""
        if self.eyes is not None and domain.kind != "vector":
            return self._seen(domain, self.eyes)
        shape = image_shape(self.architecture)
        if shape is not None:
            return self._small_images(domain, shape)
        if domain.kind != "vector":
            raise UserError(f"{domain.name} holds images, but this model was trained on feature vectors.")
        if self.eyes is not None and not self.eyes.frozen:
            raise UserError(f"{domain.name} holds feature vectors, but this model was trained on images.")
        if domain.tensor.shape[1] != self.architecture.inputs:
            found = domain.tensor.shape[1]
            raise UserError(f"{domain.name} has {found} features a row, expected {self.architecture.inputs}.")
        return _all(domain)

    def _seen(self, domain: Domain, eyes: Eyes) -> Ready:
        images = domain.x if isinstance(domain.x, Images) else ImageRows(domain.x)
        if not eyes.frozen:
            return _all(replace(domain, x=images))
        if not self.quiet:
            _say(f"features of {domain.name}: {counted(len(images), 'image')}, {eyes.backbone.name} …")
        features = extract(images, eyes.backbone, eyes.framing, self.device, self.workers, self.quiet)
        if not self.quiet:
            rate = f"{features.computed / max(features.seconds, 1e-9):.0f} images/s"
            before = f"{len(images) - features.computed:,} kept from before" if features.computed < len(images) else ""
            now = f"{features.computed:,} computed in {features.seconds:.1f} s, {rate}" if features.computed else ""
            _say(f"features of {domain.name}: {'; '.join(filter(None, (before, now)))}")
        return _some(domain, features.rows, features.unreadable, features.x)

    def _small_images(self, domain: Domain, shape: ImageShape) -> Ready:
        """Images for a digit network, in memory; files are decoded once."""
        if domain.kind == "vector":
            raise UserError(f"{domain.name} holds feature vectors, but this model was trained on images.")
        if isinstance(domain.x, Images):
            rows, parts = list[int](), list[torch.Tensor]()
            unreadable: Unreadable = {}
            fit = partial(_fitted, shape=shape)
            workers = workers_here(self.workers, len(domain))
            for some in image_pass(domain.x, grouped(range(len(domain)), 64), fit, 2 * shape.size, workers):
                rows += some.rows
                parts += [some.x] if some.rows else []
                unreadable |= some.unreadable
            return _some(domain, rows, unreadable, torch.cat(parts) if parts else torch.empty(0))
        return _all(replace(domain, x=fit_images(domain.x, shape)))


def image_shape(architecture: Architecture) -> ImageShape | None:
    """The images a digit network takes; None for another."""
    network = DIGIT_NETWORKS.get(architecture.network)
    return None if network is None else ImageShape(network.channels, network.size, network.crop)


def _fitted(image: torch.Tensor, shape: ImageShape) -> torch.Tensor:
    return fit_images(image[None], shape)[0]


def _all(domain: Domain) -> Ready:
    return Ready(domain, [*range(len(domain))], {})


def _some(domain: Domain, rows: list[int], unreadable: Unreadable, x: torch.Tensor) -> Ready:
    """The rows of a domain that could be read, as `x`."""
    if not rows:
        reason = next(iter(unreadable.values()))
        raise UserError(f"None of the {len(domain)} images of {domain.name} can be read, the first because: {reason}.")
    kept = domain if not unreadable else domain.keep(rows)
    return Ready(replace(kept, x=x, origin=domain.fingerprint()), rows, unreadable)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
