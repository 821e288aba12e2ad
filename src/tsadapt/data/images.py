"""Images that are read when they are needed: files, members of a tar archive, or rows of an array.

Shapes: an image is (3, height, width) as uint8, each of its own size; N images.
"""

import hashlib
import io
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

__all__ = ["SUFFIXES", "ImageFiles", "ImageRows", "Images", "UnreadableImageError", "decode"]

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jfif")
"""What the names of image files end in, in any case."""

READERS = 8
"""Files read at once for a fingerprint: disks answer faster when asked for several."""


class UnreadableImageError(Exception):
    """An image that cannot be decoded, and why."""


class Images(ABC):
    """N images, by their number."""

    @abstractmethod
    def __len__(self) -> int:
        """N."""

    @abstractmethod
    def decode(self, row: int, at_least: int) -> Tensor:
        """The image, whose sides may have been halved while they stay `at_least` long; UnreadableImageError."""

    @abstractmethod
    def digest(self, row: int) -> bytes:
        """A hash of what the image is decoded from; empty if it cannot be read at all."""

    @abstractmethod
    def keep(self, rows: list[int]) -> "Images":
        """Some of the images."""

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all images in their order, whatever they are called."""
        whole = hashlib.sha256()
        with ThreadPoolExecutor(READERS) as pool:
            for digest in pool.map(self.digest, range(len(self))):
                whole.update(len(digest).to_bytes(1, "big") + digest)
        return whole.hexdigest()[:16]


class ImageFiles(Images):
    """Image files; with `spans`, the (offset, length) of each within its file, which is then an archive."""

    def __init__(self, paths: Iterable[str | Path], spans: Iterable[tuple[int, int]] | None = None) -> None:
        self.paths = tuple(str(path) for path in paths)
        self.spans = None if spans is None else tuple(spans)

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, row: int) -> bytes:
        """The bytes of an image."""
        with open(self.paths[row], "rb") as file:
            if self.spans is None:
                return file.read()
            offset, length = self.spans[row]
            file.seek(offset)
            return file.read(length)

    def decode(self, row: int, at_least: int) -> Tensor:
        """The image; UnreadableImageError with the reason if it is missing or damaged."""
        try:
            return decode(self.read(row), at_least)
        except OSError as error:
            raise UnreadableImageError(error.strerror or str(error)) from error

    def digest(self, row: int) -> bytes:
        """SHA-256 of the file."""
        try:
            return hashlib.sha256(self.read(row)).digest()
        except OSError:
            return b""

    def keep(self, rows: list[int]) -> "ImageFiles":
        """Some of the images."""
        spans = None if self.spans is None else [self.spans[row] for row in rows]
        return ImageFiles((self.paths[row] for row in rows), spans)


class ImageRows(Images):
    """Images of one size in memory, (N, channels, height, width) as uint8."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def decode(self, row: int, at_least: int) -> Tensor:
        """The image; grey ones get three equal channels."""
        image = self.x[row]
        return image.expand(3, -1, -1).contiguous() if len(image) == 1 else image

    def digest(self, row: int) -> bytes:
        """SHA-256 of the pixels."""
        return hashlib.sha256(repr(tuple(self.x.shape)).encode() + self.x[row].numpy().tobytes()).digest()

    def keep(self, rows: list[int]) -> "ImageRows":
        """Some of the images."""
        return ImageRows(self.x[rows])


def decode(data: bytes, at_least: int) -> Tensor:
    """The pixels (3, height, width) of an encoded image, turned upright; UnreadableImageError with the reason.

    A JPEG is decoded at a half, a quarter or an eighth of its size while its sides stay `at_least` long: photographs
    are read several times faster that way.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a library's remarks on odd metadata
            image: Image.Image = Image.open(io.BytesIO(data))
            image.draft("RGB", (at_least, at_least))
            image = ImageOps.exif_transpose(image)
            if image.mode[0] in "IF":  # more than 8 bits a pixel, which Pillow would cut off at 255
                image = Image.fromarray(_eight_bits(np.asarray(image)))
            pixels = np.array(image.convert("RGB"))
    except Exception as error:  # parsers of damaged files raise anything
        raise UnreadableImageError(_reason(error, data)) from error
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _eight_bits(x: np.ndarray) -> np.ndarray:
    """Grey values as bytes: fractions up to 1 and 16-bit numbers are scaled, 0…255 stays."""
    top = float(x.max())
    if x.dtype == np.uint16 or top > 255:
        x = x / 257
    elif x.dtype.kind == "f" and top <= 1:
        x = x * 255
    return x.clip(0, 255).round().astype(np.uint8)


def _reason(error: Exception, data: bytes) -> str:
    if not data:
        return "the file is empty"
    if isinstance(error, UnidentifiedImageError):
        return "not an image that can be read"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
