"""Features of images by a frozen backbone: computed once, kept on the disk, and gone on with after a stop.

The cache is a folder a fingerprint (of the images, the weights and the framing) with one file for every `PART` rows.
It lies where TSADAPT_CACHE says, or else in ~/.cache/tsadapt, and may be deleted at any time.

Shapes: N images, K features.
"""

import hashlib
import io
import os
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tsadapt.data.image_loader import image_pass, workers_here
from tsadapt.data.images import Images
from tsadapt.data.transforms import Framing, evaluation_transform
from tsadapt.engine.files import write_atomically
from tsadapt.engine.progress import StepProgress
from tsadapt.errors import UserError
from tsadapt.models.backbones import Backbone, for_inference
from tsadapt.models.classifier import InputScaling

__all__ = ["Features", "cache_root", "extract"]

PART = 512
"""Rows of one file of the cache: what a kill may cost."""

BATCH = 16
"""Images forwarded at once: more would leave the processor's caches."""


@dataclass(frozen=True)
class Features:
    """x (N', K) of the `rows` that could be read, and who could not be, with the reason."""

    x: Tensor
    rows: list[int]
    unreadable: dict[int, str]
    computed: int


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
    key = repr((images.fingerprint, backbone.fingerprint(), asdict(framing)))
    folder = cache_root() / "features" / hashlib.sha256(key.encode()).hexdigest()[:20]
    spans = [range(start, min(start + PART, len(images))) for start in range(0, len(images), PART)]
    paths = [folder / f"rows-{span.start:09d}.npz" for span in spans]
    found = [_read(path) for path in paths]
    missing = [i for i, part in enumerate(found) if part is None]
    if missing:
        rows = [row for i in missing for row in spans[i]]
        network = _Network(backbone, device)
        with StepProgress(len(images), len(images) - len(rows), quiet, "image") as progress:
            for i in missing:
                found[i] = _compute(images, spans[i], network, framing, workers_here(workers, len(rows)), progress)
                _write(paths[i], found[i])
    parts = [part for part in found if part is not None]
    return Features(
        torch.from_numpy(np.concatenate([part.x for part in parts])),
        [int(row) for part in parts for row in part.rows],
        {row: why for part in parts for row, why in part.unreadable.items()},
        computed=sum(len(spans[i]) for i in missing),
    )


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


def _compute(
    images: Images, span: range, network: _Network, framing: Framing, workers: int, progress: StepProgress
) -> _Part:
    x, rows = [np.empty((0, network.dim), np.float32)], list[int]()
    unreadable: dict[int, str] = {}
    view = evaluation_transform(framing)
    for some in image_pass(images, [*span], view, 2 * framing.resize, BATCH, workers):
        if some.rows:
            x.append(network(some.x))
        rows += some.rows
        unreadable |= some.unreadable
        progress.advance(progress.done + len(some.rows) + len(some.unreadable))
    return _Part(np.concatenate(x), np.array(rows, np.int64), unreadable)


def _write(path: Path, part: _Part | None) -> None:
    assert part is not None
    buffer = io.BytesIO()
    bad_rows, reasons = np.array([*part.unreadable], np.int64), np.array([*part.unreadable.values()], str)
    np.savez(buffer, x=part.x, rows=part.rows, bad_rows=bad_rows, reasons=reasons)
    try:
        write_atomically(path, buffer.getvalue())
    except OSError as error:
        raise UserError(
            f"The features cannot be kept in {path.parent}: {error.strerror}. Name another folder with TSADAPT_CACHE."
        ) from error


def _read(path: Path) -> _Part | None:
    """A part of the cache; None if it is not there, or damaged."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            bad = zip(arrays["bad_rows"].tolist(), arrays["reasons"].tolist(), strict=True)
            return _Part(arrays["x"], arrays["rows"], dict(bad))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
