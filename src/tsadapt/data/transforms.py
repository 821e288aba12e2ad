"""Preprocessing of images: crop, resize, and number of channels.

`ImageShape` and `fit_images` are for small images in memory; `Framing` and its transforms are for photographs.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.data.frames import THIN, Framing, ImageShape
from tsadapt.vision import load_torchvision

__all__ = [
    "Augment",
    "Framing",
    "ImageShape",
    "Transform",
    "evaluation_transform",
    "fit_images",
    "seen",
    "strong_transform",
    "training_transform",
]

Transform = Callable[[Tensor], Tensor]
Augment = Literal["random-crop", "center-crop"]
"""Augmentation in training: a random crop and flip, or only a flip (the protocol of VisDA-2017)."""

CHUNK = 4096
"""Images resized per batch, to bound memory."""


def fit_images(x: Tensor, shape: ImageShape) -> Tensor:
    """Images (N, channels, H, W), cropped and resized to a shape, as uint8.

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


def evaluation_transform(framing: Framing, ten_crop: bool = False) -> Transform:
    """Resize and crop the centre: (3, size, size); or centre, corners and their mirror images: (10, 3, size, size)."""
    v2 = _transforms()
    if not ten_crop:
        transform: Transform = v2.Compose([_resize(framing), v2.CenterCrop(framing.size)])
        return transform
    ten: Transform = v2.Compose([_resize(framing), v2.TenCrop(framing.size), torch.stack])
    return ten


def training_transform(framing: Framing, augment: Augment) -> Transform:
    """Resize, then crop and flip at random with torch's global generator: (3, size, size)."""
    v2 = _transforms()
    crop = (
        v2.RandomResizedCrop(framing.size, interpolation=_mode(framing), antialias=True)
        if augment == "random-crop"
        else v2.CenterCrop(framing.size)
    )
    transform: Transform = v2.Compose([_resize(framing), crop, v2.RandomHorizontalFlip()])
    return transform


def strong_transform(framing: Framing | None = None, augment: Augment = "random-crop") -> Transform:
    """As in training, then two random changes of shape or colour (RandAugment; Cubuk et al., 2020): (3, size, size).

    Without a framing, the changes alone: of an image of any size, with one channel or three, as uint8.
    """
    v2 = _transforms()
    changes: Transform = v2.RandAugment(num_ops=2, magnitude=10)
    if framing is None:
        return changes
    transform: Transform = v2.Compose([training_transform(framing, augment), changes])
    return transform


def seen(view: Transform, image: Tensor, seed: int) -> Tensor:
    """The view of an image, a function of the seed."""
    # The transforms use torch's global generator. Without workers, training uses it too: leave it unchanged.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return view(image)


def _resize(framing: Framing) -> Any:
    v2 = _transforms()
    if not framing.keep_aspect:
        return v2.Resize((framing.resize, framing.resize), interpolation=_mode(framing), antialias=True)
    return v2.Compose([not_too_thin, v2.Resize(framing.resize, interpolation=_mode(framing), antialias=True)])


def not_too_thin(image: Tensor) -> Tensor:
    """The middle of an image with an aspect ratio above `THIN`, which would become huge when its short side is resized.

    >>> import torch
    >>> not_too_thin(torch.zeros(3, 2, 900)).shape
    torch.Size([3, 2, 16])
    """
    h, w = image.shape[-2:]
    rows, columns = min(h, THIN * w), min(w, THIN * h)
    top, left = (h - rows) // 2, (w - columns) // 2
    return image[..., top : top + rows, left : left + columns]


def _mode(framing: Framing) -> Any:
    return _transforms().InterpolationMode(framing.interpolation)


def _transforms() -> Any:
    load_torchvision()
    from torchvision.transforms import v2

    return v2
