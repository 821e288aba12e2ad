"""tsadapt features: embeddings of images."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tsadapt.cli.options import WHOLE, MaybeText, MaybeWhole
from tsadapt.cli.output import STREAM, check_output, output

__all__ = ["Features"]


@dataclass(frozen=True)
class Features:
    """Write the features of all images of DATA by a pretrained backbone to an .npz, for fit or any other use.

    Arrays: x (images × features, float32), names, and y and classes where the labels are known. They are computed once
    and kept (in ~/.cache/tsadapt, or where TSADAPT_CACHE says), so the same command is quick the second time.

    Example: tsadapt features photos/new --backbone resnet50 --out new.npz
    """

    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """A folder of images, a list file, an array of images, or a name such as office31:amazon."""
    out: Path
    """The .npz to write."""
    backbone: Annotated[str, tyro.conf.arg(metavar="NAME")] = "resnet50"
    """A timm network, torchvision:NAME (tsadapt list backbones), or your own FILE.py:FUNCTION."""
    weights: Annotated[MaybeText, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: downloaded)")] = None
    """Backbone weights: a .safetensors or .pth file, or none for random ones."""
    image_size: Annotated[MaybeWhole, WHOLE, tyro.conf.arg(help_behavior_hint="(default: the backbone's)")] = None
    """Side of the images that the backbone takes, in pixels."""
    workers: Annotated[MaybeWhole, WHOLE, tyro.conf.arg(help_behavior_hint="(default: one per core, at most 8)")] = None
    """Processes that decode images."""
    device: Annotated[str, tyro.conf.arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda, …"""
    quiet: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Hide progress."""

    def __call__(self) -> int:
        """Compute the features and write them."""
        import numpy as np
        import torch

        from tsadapt.data.open import open_dataset
        from tsadapt.data.transforms import Framing
        from tsadapt.data.types import match_labels
        from tsadapt.errors import UserError, printable
        from tsadapt.models.encoders import find_backbone
        from tsadapt.models.networks import Architecture
        from tsadapt.models.preprocessing import Preprocessing, Reader
        from tsadapt.training.runtime import pick_device

        if self.workers is not None and self.workers < 0:
            raise UserError(f"workers is {self.workers}, expected zero or more.")
        check_output(self.out, self.data)
        if self.out != STREAM and self.out.suffix != ".npz":
            raise UserError(f"--out is {self.out}, expected a name ending in .npz.")
        data = open_dataset(self.data)
        for note in dict.fromkeys((*data.train.notes, *data.test.notes)):
            print(printable(f"note: {note}"), file=sys.stderr)
        if data.train.kind == "vector":
            raise UserError(f"{self.data} holds feature vectors already: expected images.")
        torch.manual_seed(0)
        backbone = find_backbone(self.backbone, self.weights, self.image_size)
        framing = Framing(backbone.size, backbone.resize, True, backbone.interpolation)
        architecture = Architecture("mlp", 0, backbone.dim)
        device = pick_device(self.device)
        reader = Reader(architecture, Preprocessing(backbone, framing, frozen=True), device, self.workers, self.quiet)
        classes = tuple(dict.fromkeys([*(data.train.classes or ()), *(data.test.classes or ())]))
        splits = {"": data.test} if data.train is data.test else {"train_": data.train, "test_": data.test}
        arrays: dict[str, np.ndarray] = {}
        for prefix, domain in splits.items():
            ready = reader(domain)
            arrays[f"{prefix}x"] = ready.domain.tensor.numpy()
            if ready.domain.y is not None:
                arrays[f"{prefix}y"] = match_labels(ready.domain, classes)[0].numpy()
                arrays["classes"] = np.array(classes)
            if ready.domain.row_names is not None:
                arrays[f"{prefix}names"] = np.array(ready.domain.row_names)
            for row, why in ready.unreadable.items():
                print(printable(f"left out, it cannot be read: {domain.row_name(row)} ({why})"), file=sys.stderr)
        with output(self.out, self.data, text=False) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        kept = sum(len(x) for key, x in arrays.items() if key.endswith("x"))
        print(printable(f"{kept} × {backbone.dim} features written to {self.out}"), file=sys.stderr)
        return 0
