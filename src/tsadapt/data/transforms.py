"""Images made ready for a network: cropped, resized, in its number of channels."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["ImageShape", "fit_images"]

CHUNK = 4096
"""Images resized at once."""


@dataclass(frozen=True)
class ImageShape:
    """What a network takes: `channels` × `size` × `size`, after a central crop where one is asked for.

    `crop` = (28, 20) cuts images of 28×28 to their central 20×20, which is where MNIST has its digit.
    """

    channels: int
    size: int
    crop: tuple[int, int] | None = None


def fit_images(x: Tensor, shape: ImageShape) -> Tensor:
    """Images (N, channels, H, W) as uint8 of that shape.

    >>> import torch
    >>> fit_images(torch.zeros(2, 3, 28, 28, dtype=torch.uint8), ImageShape(1, 16, crop=(28, 20))).shape
    torch.Size([2, 1, 16, 16])
    """
    if shape.crop is not None and tuple(x.shape[2:]) == (shape.crop[0],) * 2:
        margin = (shape.crop[0] - shape.crop[1]) // 2
        x = x[:, :, margin : margin + shape.crop[1], margin : margin + shape.crop[1]]
    return torch.cat([_resized(part, shape) for part in torch.split(x, CHUNK)])


def _resized(x: Tensor, shape: ImageShape) -> Tensor:
    if tuple(x.shape[1:]) == (shape.channels, shape.size, shape.size):
        return x
    y = x.float()
    if y.shape[1] != shape.channels:
        y = y.mean(1, keepdim=True).expand(-1, shape.channels, -1, -1)
    if tuple(y.shape[2:]) != (shape.size, shape.size):
        y = F.interpolate(y, size=(shape.size, shape.size), mode="bilinear", antialias=True, align_corners=False)
    return y.round().clamp(0, 255).to(torch.uint8)
