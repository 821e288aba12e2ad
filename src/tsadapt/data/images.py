"""Images that are read on demand: files, members of a tar archive, or rows of an array.

Shapes: an image is (3, height, width) as uint8, each of its own size; N images.
"""

import hashlib
import io
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from tsadapt.data.reading import oddity, reason
from tsadapt.data.rows import as_rows

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MOST_PIXELS", "SUFFIXES", "ImageFiles", "ImageRows", "Images", "UnreadableImageError", "decode", "pixels"]

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jfif")
"""Suffixes of image files, in upper or lower case."""

MOST_PIXELS = 100_000_000
"""The largest image that is decoded, in pixels (10,000 × 10,000): more would take gigabytes in each worker."""

TOO_MANY = f"more than the limit of {MOST_PIXELS // 1_000_000} megapixels"

MOST_BYTES = 1 << 30
"""The largest image file that is read, in bytes."""

READERS = 8
"""Files read in parallel for a fingerprint, which is faster on most disks."""


class UnreadableImageError(Exception):
    """An image cannot be decoded; the message is the reason."""


class Images(ABC):
    """N images, by row number."""

    @abstractmethod
    def __len__(self) -> int:
        """N."""

    @abstractmethod
    def decode(self, row: int, at_least: int) -> "Tensor":
        """The image, maybe at a reduced size with sides of `at_least`; raises UnreadableImageError."""

    @abstractmethod
    def digest(self, row: int) -> bytes:
        """A hash of the encoded image; empty if it cannot be read."""

    @abstractmethod
    def keep(self, rows: list[int]) -> "Images":
        """A subset of the images."""

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all images in order; file names do not matter."""
        whole = hashlib.sha256()
        with ThreadPoolExecutor(READERS) as pool:
            for digest in pool.map(self.digest, range(len(self))):
                whole.update(len(digest).to_bytes(1, "big") + digest)
        return whole.hexdigest()[:16]


class ImageFiles(Images):
    """Image files, or members of archives: `spans` are their (offset, length) in the archive."""

    def __init__(self, paths: Iterable[str | Path], spans: Iterable[tuple[int, int]] | None = None) -> None:
        self.paths = tuple(str(path) for path in paths)
        self.spans = None if spans is None else tuple(spans)

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, row: int) -> bytes:
        """The bytes of an image; raises UnreadableImageError."""
        path = self.paths[row]
        what = oddity(path)
        if what is not None:
            raise UnreadableImageError(f"it is {what}")
        try:
            with open(path, "rb") as file:
                offset, length = (0, os.fstat(file.fileno()).st_size) if self.spans is None else self.spans[row]
                if length > MOST_BYTES:
                    raise UnreadableImageError(f"{length:,} bytes, more than the limit of {MOST_BYTES:,}")
                file.seek(offset)
                return file.read(length)
        except OSError as error:
            raise UnreadableImageError(reason(error)) from error

    def decode(self, row: int, at_least: int) -> "Tensor":
        """The image; raises UnreadableImageError if it is missing, damaged or too large."""
        return decode(self.read(row), at_least)

    def digest(self, row: int) -> bytes:
        """SHA-256 of the file."""
        try:
            return hashlib.sha256(self.read(row)).digest()
        except UnreadableImageError:
            return b""

    def keep(self, rows: list[int]) -> "ImageFiles":
        """A subset of the images."""
        spans = None if self.spans is None else [self.spans[row] for row in rows]
        return ImageFiles((self.paths[row] for row in rows), spans)


class ImageRows(Images):
    """Images of one size in memory, (N, channels, height, width) as uint8."""

    def __init__(self, x: "Tensor") -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def decode(self, row: int, at_least: int) -> "Tensor":
        """The image; a grey one gets three equal channels."""
        image = self.x[row]
        return image if len(image) == 3 else as_rows(np.repeat(np.asarray(image), 3, axis=0))

    def digest(self, row: int) -> bytes:
        """SHA-256 of the pixels."""
        return hashlib.sha256(repr(tuple(self.x.shape)).encode() + np.asarray(self.x[row]).tobytes()).digest()

    def keep(self, rows: list[int]) -> "ImageRows":
        """A subset of the images."""
        return ImageRows(self.x[rows])


def decode(data: bytes, at_least: int) -> "Tensor":
    """The pixels (3, height, width) of an encoded image; raises UnreadableImageError.

    A JPEG is decoded at a half, a quarter or an eighth of its size, as long as its sides stay `at_least` long. That is
    several times faster for photographs.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from Pillow, about odd metadata
            image: Image.Image = Image.open(io.BytesIO(data))  # reads the header only
            _check_size(image)
            image.draft("RGB", (at_least, at_least))
            return pixels(image)
    except UnreadableImageError:
        raise
    except Exception as error:  # parsers of damaged files raise exceptions of any type
        raise UnreadableImageError(_reason(error, data)) from error


def pixels(image: Image.Image) -> "Tensor":
    """The pixels (3, height, width) of an image, upright as its EXIF orientation says.

    Raises UnreadableImageError if it has more than `MOST_PIXELS`.

    >>> pixels(Image.new("L", (40, 30))).shape
    torch.Size([3, 30, 40])
    """
    _check_size(image)
    image = ImageOps.exif_transpose(image)
    if image.mode[0] in "IF":  # more than 8 bits per pixel, which Pillow would clip at 255
        image = Image.fromarray(_eight_bits(np.asarray(image)))
    return as_rows(np.array(image.convert("RGB")).transpose(2, 0, 1))


def _check_size(image: Image.Image) -> None:
    """Refuse an image that would take too much memory, by its header, before it is decoded."""
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise UnreadableImageError(f"{width:,} × {height:,} pixels, {TOO_MANY}")


def _eight_bits(x: np.ndarray) -> np.ndarray:
    """Grey values as bytes: scales fractions up to 1 and 16-bit numbers; keeps values from 0 to 255."""
    top = float(x.max())
    if x.dtype == np.uint16 or top > 255:
        x = x / 257
    elif x.dtype.kind == "f" and top <= 1:
        x = x * 255
    return x.clip(0, 255).round().astype(np.uint8)


def _reason(error: Exception, data: bytes) -> str:
    if not data:
        return "the file is empty"
    if isinstance(error, Image.DecompressionBombError):  # Pillow's own limit, of twice as many
        return TOO_MANY
    return "not a readable image" if isinstance(error, UnidentifiedImageError) else reason(error)
