"""Features of images by a frozen backbone: computed once, kept on the disk, and gone on with after a stop.

The cache is a folder a fingerprint (of images, weights, framing and precision) with one file for every `PART` rows.
It lies where TSADAPT_CACHE says, or else in ~/.cache/tsadapt, and may be deleted at any time.

Shapes: N images, K features.
"""

import hashlib
import io
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tsadapt.cache import cache_root
from tsadapt.config import FeaturePrecision
from tsadapt.core.processes import Processes
from tsadapt.data.image_loader import ImagePass, computes_in_workers, grouped, image_pass, workers_here
from tsadapt.data.images import Images, UnreadableImageError
from tsadapt.data.transforms import Framing, evaluation_transform
from tsadapt.errors import printable
from tsadapt.files import write_atomically
from tsadapt.models.backbones import Backbone
from tsadapt.models.inference import REVISION, FrozenNetwork
from tsadapt.progress import StepProgress

__all__ = ["PART", "Features", "cached", "extract", "readable"]

PART = 128
"""Rows of one file of the cache: what a kill may cost."""

MOST_WORKERS = 32
"""Processes that compute features, at most: each holds the activations of its batch."""


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


def extract(
    images: Images,
    backbone: Backbone,
    framing: Framing,
    device: torch.device,
    workers: int | None = None,
    quiet: bool = False,
    processes: Processes | None = None,
    precision: FeaturePrecision = "fp32",
) -> Features:
    """The features of all images, from the cache as far as they are there.

    With `processes` each computes a part of them, and takes the rest from the cache that they share. On a CPU every
    worker decodes and forwards batches of its own, on one thread: no core waits for another.
    """
    began, spans = time.monotonic(), grouped(range(len(images)), PART)
    paths = _paths(images, backbone.fingerprint(), framing, precision)
    found = [_read(path, span, images) for path, span in zip(paths, spans, strict=True)]
    missing = [i for i, part in enumerate(found) if part is None]
    if processes is not None:
        missing = [i for i in missing if i % processes.number == processes.rank]
    rows = sum(len(spans[i]) for i in missing)
    if missing:
        network, view = FrozenNetwork(backbone, device, precision), evaluation_transform(framing)
        groups = [group for i in missing for group in grouped(spans[i], network.rows)]
        here = computes_in_workers(device)
        workers = workers_here(workers, rows, MOST_WORKERS if here else 8)
        decoded = image_pass(images, groups, view, 2 * framing.resize, workers, then=network if here else None)
        forwarded = decoded if here else (replace(some, x=network(some.x) if some.rows else some.x) for some in decoded)
        with StepProgress(len(images), len(images) - rows, quiet, "image") as progress:
            try:
                keep = True
                for i in missing:
                    found[i] = part = _compute(forwarded, len(spans[i]), network.dim, progress)
                    keep = keep and _write(paths[i], part)
            except KeyboardInterrupt as stop:
                raise KeyboardInterrupt("the features so far are cached; run the same command to resume") from stop
    if processes is not None:
        processes.wait()
        return replace(extract(images, backbone, framing, device, workers, quiet), computed=rows)
    return _joined([part for part in found if part is not None], rows, began)


def cached(images: Images, weights: str, framing: Framing, precision: FeaturePrecision) -> Features | None:
    """The features that are in the cache, by the fingerprint of the backbone's weights; None unless all of them are."""
    began, spans = time.monotonic(), grouped(range(len(images)), PART)
    paths = _paths(images, weights, framing, precision)
    found = [_read(path, span, images) for path, span in zip(paths, spans, strict=True)]
    parts = [part for part in found if part is not None]
    return _joined(parts, 0, began) if len(parts) == len(spans) else None


def _paths(images: Images, weights: str, framing: Framing, precision: FeaturePrecision) -> list[Path]:
    """The files of the cache for these images, in order."""
    way = () if precision == "fp32" else (precision, REVISION)  # float32 was once the only one: what was kept is found
    key = repr((images.fingerprint, weights, asdict(framing), PART, *way))
    folder = cache_root() / "features" / hashlib.sha256(key.encode()).hexdigest()[:20]
    return [folder / f"rows-{span.start:09d}.npz" for span in grouped(range(len(images)), PART)]


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


def _compute(forwarded: Iterator[ImagePass], rows: int, dim: int, progress: StepProgress) -> _Part:
    """The features of the next `rows` images of a pass."""
    x, kept = [np.empty((0, dim), np.float32)], list[int]()
    unreadable: dict[int, str] = {}
    while len(kept) + len(unreadable) < rows:
        some = next(forwarded)
        if some.rows:
            x.append(some.x.numpy())
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
