"""Preprocessing: data as a network takes it. Small images are resized; photographs are framed, or become features."""

import sys
from dataclasses import dataclass, replace
from functools import partial

import torch

from tsadapt.config import FeaturePrecision
from tsadapt.core.processes import Processes
from tsadapt.data.image_loader import grouped, image_pass, workers_here
from tsadapt.data.images import ImageRows, Images
from tsadapt.data.stored import StoredRows
from tsadapt.data.transforms import Framing, ImageShape, fit_images
from tsadapt.data.types import Domain, Unreadable
from tsadapt.errors import UserError, counted, printable
from tsadapt.models.activations import Looks, store
from tsadapt.models.backbones import Backbone
from tsadapt.models.features import extract
from tsadapt.models.networks import NETWORKS, Architecture
from tsadapt.models.stages import Stem

__all__ = ["Prepared", "Preprocessing", "Reader"]


@dataclass(frozen=True)
class Preprocessing:
    """How photographs reach a model: through which backbone, framed how; `ten_crop` averages over ten parts of each.

    A frozen backbone is no part of what is trained: the model takes its features, computed in some `precision`.
    Otherwise the model contains it, also where only its last stages are trained.
    """

    backbone: Backbone
    framing: Framing
    frozen: bool
    ten_crop: bool = False
    precision: FeaturePrecision = "fp32"


@dataclass(frozen=True)
class Prepared:
    """A domain as the network takes it: `rows` of the one given, without the images that could not be read."""

    domain: Domain
    rows: list[int]
    unreadable: Unreadable


@dataclass(frozen=True)
class Reader:
    """Prepares domains for a network of some architecture, photographs by its preprocessing."""

    architecture: Architecture
    preprocessing: Preprocessing | None
    device: torch.device
    workers: int | None = None
    quiet: bool = False
    stored: tuple[Stem, Looks] | None = None
    """For training from a stage on: what computes the activations before it, and in which views."""
    processes: Processes | None = None
    """Those that compute features together, if there are several."""

    def __call__(self, domain: Domain) -> Prepared:
        """The domain in the shape that the network takes; UserError if it is of another kind."""
        if self.preprocessing is not None and domain.kind != "vector":
            return self._photographs(domain, self.preprocessing)
        shape = NETWORKS[self.architecture.network].takes
        if shape is not None:
            return self._small_images(domain, shape)
        if domain.kind != "vector":
            raise UserError(f"{domain.name} contains images, but this model was trained on feature vectors.")
        if self.preprocessing is not None and not self.preprocessing.frozen:
            raise UserError(f"{domain.name} contains feature vectors, but this model was trained on images.")
        if domain.tensor.shape[1] != self.architecture.inputs:
            found = domain.tensor.shape[1]
            raise UserError(f"{domain.name} has {found} features per row, expected {self.architecture.inputs}.")
        return _all(domain)

    def _photographs(self, domain: Domain, preprocessing: Preprocessing) -> Prepared:
        images = domain.x if isinstance(domain.x, Images) else ImageRows(domain.tensor)
        if self.stored is not None:
            stem, looks = self.stored
            found = store(
                images, preprocessing.backbone, stem, preprocessing.framing, looks, self.device, self.workers,
                self.quiet, domain.name,
            )  # fmt: skip
            return _some(domain, found.rows, found.unreadable, found.x)
        if not preprocessing.frozen:
            return _all(replace(domain, x=images))
        if not self.quiet:
            _say(f"features of {domain.name}: {counted(len(images), 'image')}, {preprocessing.backbone.name} …")
        features = extract(
            images, preprocessing.backbone, preprocessing.framing, self.device, self.workers, self.quiet,
            self.processes, preprocessing.precision,
        )  # fmt: skip
        if not self.quiet:
            rate = f"{features.computed / max(features.seconds, 1e-9):.0f} images/s"
            before = f"{len(images) - features.computed:,} from the cache" if features.computed < len(images) else ""
            now = f"{features.computed:,} computed in {features.seconds:.1f} s, {rate}" if features.computed else ""
            _say(f"features of {domain.name}: {'; '.join(filter(None, (before, now)))}")
        return _some(domain, features.rows, features.unreadable, features.x)

    def _small_images(self, domain: Domain, shape: ImageShape) -> Prepared:
        """Images for a digit network, in memory; files are decoded once."""
        if domain.kind == "vector":
            raise UserError(f"{domain.name} contains feature vectors, but this model was trained on images.")
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
        return _all(replace(domain, x=fit_images(domain.tensor, shape)))


def _fitted(image: torch.Tensor, shape: ImageShape) -> torch.Tensor:
    return fit_images(image[None], shape)[0]


def _all(domain: Domain) -> Prepared:
    return Prepared(domain, [*range(len(domain))], {})


def _some(domain: Domain, rows: list[int], unreadable: Unreadable, x: torch.Tensor | StoredRows) -> Prepared:
    """The rows of a domain that could be read, as `x`."""
    if not rows:
        reason = next(iter(unreadable.values()))
        raise UserError(f"None of the {len(domain)} images of {domain.name} can be read. The first: {reason}.")
    kept = domain if not unreadable else domain.keep(rows)
    return Prepared(replace(kept, x=x, origin=domain.fingerprint()), rows, unreadable)


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)
