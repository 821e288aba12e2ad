"""Activations of images before the stage that training begins at: computed once, kept on the disk, memory-mapped.

They lie beside the features (`models.features`), a folder for each view, and are gone on with after a stop.

Shapes: N images; activations of any shape, float16.
"""

import hashlib
import io
import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tsadapt.cache import cache_root, in_words
from tsadapt.data.image_loader import ImagePass, grouped, image_pass, workers_here
from tsadapt.data.images import Images
from tsadapt.data.loader import mixed
from tsadapt.data.stored import StoredRows
from tsadapt.data.transforms import Augment, Framing, Transform, evaluation_transform, training_transform
from tsadapt.errors import UserError, counted, printable
from tsadapt.files import write_atomically
from tsadapt.models.backbones import Backbone
from tsadapt.models.features import PART, readable
from tsadapt.models.stages import STORED, Stem
from tsadapt.progress import StepProgress

__all__ = ["Activations", "Looks", "store"]

BATCH = 16
"""Images forwarded at once: more would leave the processor's caches."""


@dataclass(frozen=True)
class Looks:
    """How training sees an image: in one of `views` random crops and flips of it, or (0) as evaluation does."""

    views: int
    augment: Augment


@dataclass(frozen=True)
class Activations:
    """Rows of the images that could be read, the numbers of these, and who could not be, with the reason."""

    x: StoredRows
    rows: list[int]
    unreadable: dict[int, str]


def store(
    images: Images,
    backbone: Backbone,
    stem: Stem,
    framing: Framing,
    looks: Looks,
    device: torch.device,
    workers: int | None = None,
    quiet: bool = False,
    name: str = "the images",
) -> Activations:
    """The activations of all images in every view, from the cache as far as they are there."""
    views = [_View(evaluation_transform(framing), None, "evaluation")]
    random = training_transform(framing, looks.augment) if looks.views else None
    views += [_View(random, mixed(8, v), f"{looks.augment} {v}") for v in range(looks.views) if random is not None]
    weights = backbone.fingerprint()
    shelves = [_Shelf(images, (weights, backbone.train_from), framing, view, stem.shape) for view in views]
    missing = [(shelf, i) for shelf in shelves for i in range(len(shelf.spans)) if shelf.find(i) is None]
    rows = sum(len(shelf.spans[i]) for shelf, i in missing)
    _check_space(rows * prod(stem.shape) * STORED.itemsize, name, stem.shape, len(images), len(views), rows, quiet)
    began = time.monotonic()
    if missing:
        stem = stem.to(device)
        with StepProgress(len(images) * len(views), len(images) * len(views) - rows, quiet, "image") as progress:
            try:
                for shelf in shelves:
                    shelf.fill(images, stem, device, framing, workers_here(workers, rows), progress)
            except KeyboardInterrupt as stop:
                raise KeyboardInterrupt("the activations so far are kept; run the same command to resume") from stop
        if not quiet:
            seconds = time.monotonic() - began
            _say(f"activations of {name}: {rows:,} computed in {seconds:.0f} s, {rows / max(seconds, 1e-9):.0f}/s")
    return _joined(shelves)


@dataclass(frozen=True)
class _View:
    transform: Transform
    seed: int | None
    """Of what is random in it, with the number of the row: the same for every run, so that all share the cache."""
    name: str


@dataclass(frozen=True)
class _Part:
    x: np.ndarray
    rows: list[int]
    unreadable: dict[int, str]


class _Shelf:
    """The activations of one view on the disk: for every `PART` images an array, and a note that says it is whole."""

    def __init__(
        self, images: Images, by: tuple[str, str | None], framing: Framing, view: _View, shape: tuple[int, ...]
    ) -> None:
        key = repr((images.fingerprint, *by, asdict(framing), view.name, shape, PART))
        self.folder = cache_root() / "activations" / hashlib.sha256(key.encode()).hexdigest()[:20]
        self.view, self.shape = view, shape
        self.spans = grouped(range(len(images)), PART)
        self._images, self._found = images, dict[int, _Part]()

    def find(self, i: int) -> _Part | None:
        """A part that is there; None if it is not, or damaged, or if an image of it can be read now after all."""
        if i not in self._found:
            array, note = self._paths(i)
            if not (array.is_file() and note.is_file()):
                return None
            try:
                said = json.loads(note.read_text(encoding="utf-8"))
                rows, unreadable = [*map(int, said["rows"])], {int(k): str(v) for k, v in said["unreadable"].items()}
                x = _mapped(array)
            except Exception:  # a damaged file can raise anything; its rows are computed again
                return None
            whole = sorted([*rows, *unreadable]) == [*self.spans[i]] and x.shape == (len(rows), *self.shape)
            if not whole or x.dtype != np.float16 or any(readable(self._images, row) for row in unreadable):
                return None
            self._found[i] = _Part(x, rows, unreadable)
        return self._found[i]

    @property
    def parts(self) -> list[_Part]:
        """All parts, which must be there."""
        return [self._found[i] for i in range(len(self.spans))]

    def fill(
        self, images: Images, stem: Stem, device: torch.device, framing: Framing, workers: int, progress: StepProgress
    ) -> None:
        """Compute what is missing."""
        missing = [i for i in range(len(self.spans)) if self.find(i) is None]
        groups = [group for i in missing for group in grouped(self.spans[i], BATCH)]
        decoded = image_pass(images, groups, self.view.transform, 2 * framing.resize, workers, self.view.seed)
        for i in missing:
            part = self._compute(decoded, len(self.spans[i]), stem, device, progress)
            array, note = self._paths(i)
            buffer = io.BytesIO()
            np.save(buffer, part.x)
            try:
                write_atomically(array, buffer.getvalue())
                write_atomically(note, json.dumps({"rows": part.rows, "unreadable": part.unreadable}).encode())
                self._found[i] = _Part(_mapped(array), part.rows, part.unreadable)
            except OSError as error:
                raise UserError(
                    f"Activations cannot be kept in {self.folder}: {error.strerror}. Set TSADAPT_CACHE to a folder with"
                    " room for them."
                ) from error

    def _paths(self, i: int) -> tuple[Path, Path]:
        start = self.folder / f"rows-{self.spans[i].start:09d}"
        return start.with_suffix(".npy"), start.with_suffix(".json")

    def _compute(
        self, decoded: Iterator[ImagePass], rows: int, stem: Stem, device: torch.device, progress: StepProgress
    ) -> _Part:
        """The activations of the next `rows` images of a pass."""
        x, kept, unreadable = [np.empty((0, *self.shape), np.float16)], list[int](), dict[int, str]()
        while len(kept) + len(unreadable) < rows:
            some = next(decoded)
            if some.rows:
                x.append(_checked(stem(some.x.to(device))))
            kept += some.rows
            unreadable |= some.unreadable
            progress.advance(progress.done + len(some.rows) + len(some.unreadable))
        return _Part(np.concatenate(x), kept, unreadable)


def _checked(activations: Tensor) -> np.ndarray:
    if not bool(activations.isfinite().all()):
        raise UserError("The activations before that stage are too large for float16. Train from another stage.")
    return activations.to(STORED).cpu().numpy()


def _mapped(path: Path) -> np.ndarray:
    return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]


def _joined(shelves: Sequence[_Shelf]) -> Activations:
    """The images that could be read in every view."""
    unreadable = {row: why for shelf in shelves for part in shelf.parts for row, why in part.unreadable.items()}
    rows = [row for span in shelves[0].spans for row in span if row not in unreadable]
    views = [[_padded(part) for part in shelf.parts] for shelf in shelves]
    return Activations(StoredRows(views[0], views[1:], np.array(rows, np.int64)), rows, unreadable)


def _padded(part: _Part) -> np.ndarray:
    """The array of a part with a row for every image, also where one could not be read."""
    if not part.unreadable:
        return part.x
    first, count = min([*part.rows, *part.unreadable]), len(part.rows) + len(part.unreadable)
    whole = np.zeros((count, *part.x.shape[1:]), part.x.dtype)
    whole[np.array(part.rows, np.int64) - first] = part.x
    return whole


def _check_space(
    needed: int, name: str, shape: tuple[int, ...], images: int, views: int, missing: int, quiet: bool
) -> None:
    """Say what will be written, and refuse what the disk has no room for."""
    each = f"{'×'.join(map(str, shape))} in float16, {in_words(prod(shape) * STORED.itemsize)}"
    said = f"activations of {name}: {counted(images, 'image')} × {counted(views, 'view')}, each {each}"
    if not missing:
        if not quiet:
            _say(f"{said}; all from the cache")
        return
    root = cache_root()
    there = next((folder for folder in (root, *root.parents) if folder.exists()), Path())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise UserError(
            f"The {said}, need {in_words(needed)} in {root}, where {in_words(free)} are free. Set TSADAPT_CACHE to a"
            " folder with room for them, take fewer --views, or train from a later stage."
        )
    if not quiet:
        _say(f"{said}: {in_words(needed)} to write in {root} ({in_words(free)} free) …")


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)
