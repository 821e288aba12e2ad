"""Features of images by a frozen backbone: computed once, kept on the disk, and gone on with after a stop.

The cache is a folder a fingerprint (of the images, the weights and the framing) with one file for every `PART` rows.
It lies where TSADAPT_CACHE says, or else in ~/.cache/tsadapt, and may be deleted at any time.

Shapes: N images, K features.
"""

import hashlib
import io
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tsadapt.data.image_loader import ImagePass, grouped, image_pass, workers_here
from tsadapt.data.images import Images, UnreadableImageError
from tsadapt.data.transforms import Framing, evaluation_transform
from tsadapt.errors import printable
from tsadapt.files import write_atomically
from tsadapt.models.backbones import Backbone, for_inference
from tsadapt.models.classifier import InputScaling
from tsadapt.progress import StepProgress

__all__ = ["BATCH", "PART", "Features", "cache_root", "cached", "extract", "readable"]

PART = 128
"""Rows of one file of the cache: what a kill may cost."""

BATCH = 16
"""Images forwarded at once: more would leave the processor's caches."""


@dataclass(frozen=True)
class Features:
    """x (N', K) of the `rows` that could be read, and who could not be, with the reason.

    `computed` images took `seconds`; the others were there from before.
    """

    x: Tensor
    rows: list[int]
    unreadable: dict[int, str]
    computed: int
    seconds: float


def cache_root() -> Path:
    """Where features are kept."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "tsadapt"
    return Path(os.environ.get("TSADAPT_CACHE") or default).expanduser()


def extract(
    images: Images,
    backbone: Backbone,
    framing: Framing,
    device: torch.device,
    workers: int | None = None,
    quiet: bool = False,
) -> Features:
    """The features of all images, from the cache as far as they are there."""
    began, spans = time.monotonic(), grouped(range(len(images)), PART)
    paths = _paths(images, backbone.fingerprint(), framing)
    found = [_read(path, span, images) for path, span in zip(paths, spans, strict=True)]
    missing = [i for i, part in enumerate(found) if part is None]
    rows = sum(len(spans[i]) for i in missing)
    if missing:
        groups = [group for i in missing for group in grouped(spans[i], BATCH)]
        network, view = _Network(backbone, device), evaluation_transform(framing)
        decoded = image_pass(images, groups, view, 2 * framing.resize, workers_here(workers, rows))
        with StepProgress(len(images), len(images) - rows, quiet, "image") as progress:
            try:
                keep = True
                for i in missing:
                    found[i] = part = _compute(decoded, len(spans[i]), network, progress)
                    keep = keep and _write(paths[i], part)
            except KeyboardInterrupt as stop:
                raise KeyboardInterrupt("the features so far are cached; run the same command to resume") from stop
    return _joined([part for part in found if part is not None], rows, began)


def cached(images: Images, weights: str, framing: Framing) -> Features | None:
    """The features that are in the cache, by the fingerprint of the backbone's weights; None unless all of them are."""
    began, spans = time.monotonic(), grouped(range(len(images)), PART)
    found = [_read(path, span, images) for path, span in zip(_paths(images, weights, framing), spans, strict=True)]
    parts = [part for part in found if part is not None]
    return _joined(parts, 0, began) if len(parts) == len(spans) else None


def _paths(images: Images, weights: str, framing: Framing) -> list[Path]:
    """The files of the cache for these images, in order."""
    key = repr((images.fingerprint, weights, asdict(framing), PART))
    folder = cache_root() / "features" / hashlib.sha256(key.encode()).hexdigest()[:20]
    return [folder / f"rows-{span.start:09d}.npz" for span in grouped(range(len(images)), PART)]


class _Network:
    """A backbone made ready for evaluation, pixels in."""

    def __init__(self, backbone: Backbone, device: torch.device) -> None:
        self.scaling = InputScaling.of_images(backbone.mean, backbone.std).to(device)
        self.body: nn.Module = for_inference(backbone.module, backbone.size).to(device)
        self.dim, self.device = backbone.dim, device

    @torch.inference_mode()
    def __call__(self, x: Tensor) -> np.ndarray:
        x = self.scaling(x.to(self.device)).contiguous(memory_format=torch.channels_last)
        out: Tensor = self.body(x)
        return out.float().cpu().numpy()


@dataclass(frozen=True)
class _Part:
    x: np.ndarray
    rows: np.ndarray
    unreadable: dict[int, str]


def _joined(parts: "list[_Part]", computed: int, began: float) -> Features:
    """The features of all parts of the cache, of which some were `computed` since `began`."""
    return Features(
        torch.from_numpy(np.concatenate([part.x for part in parts])),
        [int(row) for part in parts for row in part.rows],
        {row: why for part in parts for row, why in part.unreadable.items()},
        computed=computed,
        seconds=time.monotonic() - began,
    )


def _compute(decoded: Iterator[ImagePass], rows: int, network: _Network, progress: StepProgress) -> _Part:
    """The features of the next `rows` images of a pass."""
    x, kept = [np.empty((0, network.dim), np.float32)], list[int]()
    unreadable: dict[int, str] = {}
    while len(kept) + len(unreadable) < rows:
        some = next(decoded)
        if some.rows:
            x.append(network(some.x))
        kept += some.rows
        unreadable |= some.unreadable
        progress.advance(progress.done + len(some.rows) + len(some.unreadable))
    return _Part(np.concatenate(x), np.array(kept, np.int64), unreadable)


def _write(path: Path, part: _Part) -> bool:
    """Keep a part; False, and a note, if that is not possible: the features are needed now, the cache later."""
    buffer = io.BytesIO()
    bad_rows, reasons = np.array([*part.unreadable], np.int64), np.array([*part.unreadable.values()], str)
    np.savez(buffer, x=part.x, rows=part.rows, bad_rows=bad_rows, reasons=reasons)
    try:
        write_atomically(path, buffer.getvalue())
    except OSError as error:
        note = (
            f"note: features cannot be cached in {path.parent}: {error.strerror}. They are used, but not kept. Set"
            " TSADAPT_CACHE to another folder to keep them."
        )
        print(printable(note), file=sys.stderr)
        return False
    return True


def _read(path: Path, span: range, images: Images) -> _Part | None:
    """A part of the cache; None if it is not there, or damaged, or if an image of it can be read now after all."""
    if not path.is_file():  # nothing, or a pipe, at which reading would wait for ever
        return None
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            bad = zip(arrays["bad_rows"].tolist(), arrays["reasons"].tolist(), strict=True)
            part = _Part(arrays["x"], arrays["rows"], dict(bad))
    except Exception:  # a damaged archive can raise anything; its rows are computed again
        return None
    whole = len(part.x) == len(part.rows) and sorted([*part.rows.tolist(), *part.unreadable]) == [*span]
    return part if whole and not any(readable(images, row) for row in part.unreadable) else None


def readable(images: Images, row: int) -> bool:
    """Whether an image can be decoded."""
    try:
        images.decode(row, 1)
    except UnreadableImageError:
        return False
    return True
