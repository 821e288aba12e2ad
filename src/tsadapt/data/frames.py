"""Photographs and small images as a network takes them, in NumPy alone: what an exported model is given without torch.

The transforms of `tsadapt.data.transforms` do the same with torch, and both give the same pixels: the arithmetic here
is that of torch's kernels. Shapes: an image is (channels, height, width) as uint8.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["THIN", "Framing", "ImageShape", "fit_image", "frame", "without_ends"]

THIN = 8
"""The largest aspect ratio; longer images lose their ends."""

BITS = 15
"""Bits of a weight: torch computes with 16-bit integers, one bit for the sign."""


@dataclass(frozen=True)
class ImageShape:
    """The input of a network: `channels` × `size` × `size`, after an optional central crop.

    `crop` = (28, 20) crops images of 28×28 to their central 20×20, which contain the digit in MNIST.
    """

    channels: int
    size: int
    crop: tuple[int, int] | None = None


@dataclass(frozen=True)
class Framing:
    """Resize photographs to `resize`, then crop the central `size` × `size`.

    `keep_aspect` resizes the short side, as usual for ImageNet; otherwise both sides are resized, as in the protocols
    of Office-31, Office-Home and VisDA-2017.
    """

    size: int = 224
    resize: int = 256
    keep_aspect: bool = True
    interpolation: str = "bilinear"


def frame(image: np.ndarray, framing: Framing, whole: bool = False) -> np.ndarray:
    """A photograph (3, H, W), resized and cropped to its centre: (3, size, size); `whole` leaves it uncropped.

    >>> frame(np.zeros((3, 300, 400), np.uint8), Framing()).shape
    (3, 224, 224)
    """
    if framing.keep_aspect:
        image = without_ends(image)
        height, width = image.shape[1:]
        short = min(height, width)
        height, width = framing.resize * height // short, framing.resize * width // short
    else:
        height = width = framing.resize
    down, across = (
        _taps(old, new, slice(None) if whole else _middle(new, framing.size), framing.interpolation)
        for old, new in ((image.shape[1], height), (image.shape[2], width))
    )
    columns = across.applied(down.shortened(image).transpose(2, 0, 1))  # (size, 3, H)
    framed: np.ndarray = down.applied(columns.transpose(2, 1, 0)).transpose(1, 0, 2)
    return framed


def without_ends(image: np.ndarray) -> np.ndarray:
    """The middle of an image with an aspect ratio above `THIN`, which would become huge when its short side is resized.

    >>> without_ends(np.zeros((3, 2, 900))).shape
    (3, 2, 16)
    """
    h, w = image.shape[-2:]
    rows, columns = min(h, THIN * w), min(w, THIN * h)
    top, left = (h - rows) // 2, (w - columns) // 2
    return image[..., top : top + rows, left : left + columns]


def fit_image(image: np.ndarray, shape: ImageShape) -> np.ndarray:
    """A small image (channels, H, W), cropped and resized to a shape, as uint8.

    >>> fit_image(np.zeros((3, 28, 28), np.uint8), ImageShape(1, 16, crop=(28, 20))).shape
    (1, 16, 16)
    """
    if shape.crop is not None and image.shape[1:] == (shape.crop[0],) * 2:
        margin = (shape.crop[0] - shape.crop[1]) // 2
        image = image[:, margin : margin + shape.crop[1], margin : margin + shape.crop[1]]
    if image.shape == (shape.channels, shape.size, shape.size):
        return image
    x = image.astype(np.float32)
    if len(x) != shape.channels:
        x = np.repeat(x.mean(0, keepdims=True), shape.channels, axis=0)
    down, across = (_taps(side, shape.size, slice(None), "bilinear", np.float32) for side in x.shape[1:])
    x = down.weighted(across.weighted(x.transpose(2, 0, 1)).transpose(2, 1, 0)).transpose(1, 0, 2)
    return x.round().clip(0, 255).astype(np.uint8)


def _middle(length: int, size: int) -> slice:
    start = round((length - size) / 2)
    return slice(start, start + size)


@dataclass(frozen=True)
class _Taps:
    """One side of a resize from `old` to `new` pixels: which pixels go into each of the M that are wanted, and how.

    `first` (M,) is the first of a pixel's K neighbours, `weights` (M, K) are theirs, `bits` those that a weight of 1 is
    shifted by as an integer.
    """

    old: int
    new: int
    first: np.ndarray
    weights: np.ndarray
    bits: int

    def shortened(self, image: np.ndarray) -> np.ndarray:
        """The rows of an image (3, H, W) that are needed at all; the taps still count from row 0."""
        last = min(int(self.first[-1]) + self.weights.shape[1], self.old)
        return image[:, :last]

    def applied(self, x: np.ndarray) -> np.ndarray:
        """Resize the first axis of an array of bytes in integers, as torch does."""
        x = np.ascontiguousarray(x)
        if self.old == self.new:
            return self._neighbour(x, 0)
        whole = np.trunc(self.weights * (1 << self.bits) + np.copysign(0.5, self.weights)).astype(np.int32)
        total = np.full((len(whole), *x.shape[1:]), 1 << (self.bits - 1), np.int32)
        for k, weight in enumerate(whole.T):  # one neighbour of all pixels at a time: a table of all would be large
            total += np.multiply(self._neighbour(x, k), weight[:, None, None], dtype=np.int32)
        done: np.ndarray = (total >> self.bits).clip(0, 255).astype(np.uint8)
        return done

    def weighted(self, x: np.ndarray) -> np.ndarray:
        """Resize the first axis in float32, multiplied and added with one rounding, as processors do."""
        if self.old == self.new:
            return self._neighbour(x, 0)
        total = np.zeros((len(self.weights), *x.shape[1:]), np.float32)
        for k, weight in enumerate(self.weights.T):
            product = self._neighbour(x, k).astype(np.float64) * weight[:, None, None]
            total = (total + product).astype(np.float32)
        return total

    def _neighbour(self, x: np.ndarray, k: int) -> np.ndarray:
        found: np.ndarray = x[np.minimum(self.first + k, self.old - 1)]
        return found


def _taps(old: int, new: int, wanted: slice, interpolation: str, kind: type[np.floating] = np.float64) -> _Taps:
    """Antialiased interpolation: the kernel is stretched by the scale where the image shrinks.

    Weights are computed in floating point numbers of a `kind`.
    """
    if old == new:
        return _Taps(old, new, np.arange(old)[wanted], np.ones((1, 1)), 1)
    kernel, reach = KERNELS[interpolation]
    one, half = kind(1), kind(0.5)
    scale = kind(old) / kind(new)
    stretch = max(scale, one)
    centre = scale * (np.arange(new).astype(kind) + half)
    first = np.maximum((centre - kind(reach) * stretch + half).astype(int), 0)
    end = np.minimum((centre + kind(reach) * stretch + half).astype(int), old)
    place = first[:, None] + np.arange((end - first).max())
    distance = ((place - centre[:, None]).astype(kind) + half) * (one / stretch)
    weights = np.where(place < end[:, None], kernel(distance), kind(0))
    weights = weights / np.cumsum(weights, axis=1)[:, -1:]
    most, bits = weights.max(), 0
    while bits < 22 and int(0.5 + most * (1 << (bits + 1))) < 1 << BITS:
        bits += 1
    return _Taps(old, new, first[wanted], weights[wanted], bits)


def _triangle(x: np.ndarray) -> np.ndarray:
    height: np.ndarray = np.maximum(x.dtype.type(0), 1 - np.abs(x))
    return height


def _cubic(x: np.ndarray) -> np.ndarray:
    """Keys' kernel with a = −1/2."""
    x = np.abs(x)
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


KERNELS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "bilinear": (_triangle, 1.0),
    "bicubic": (_cubic, 2.0),
}
"""Kernels, and how far they reach."""
