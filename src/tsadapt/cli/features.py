"""tsadapt features: embeddings of images."""

import contextlib
import io
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional, TypeAlias

import tyro

from tsadapt.cli.options import WHOLE, MaybeText, MaybeWhole, TableOptions
from tsadapt.cli.output import STREAM, check_output, output
from tsadapt.config import FeaturePrecision

if TYPE_CHECKING:
    from tsadapt.core.processes import Processes

__all__ = ["Features"]

Ways: TypeAlias = Optional[FeaturePrecision]  # noqa: UP045 (X | None is slow to import in tyro)


@dataclass(frozen=True)
class Features(TableOptions):
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
    feature_precision: Annotated[
        Ways,
        tyro.conf.arg(
            metavar="{fp32,fp32-fused,bf16}",
            help_behavior_hint="(default: bf16 where the CPU has it and the features agree, else fp32-fused)",
        ),
    ] = None
    """How they are computed: fp32, fp32-fused (layers fused: the same but for rounding), or bf16."""
    workers: Annotated[MaybeWhole, WHOLE, tyro.conf.arg(help_behavior_hint="(default: one per core, at most 32)")] = (
        None
    )
    """Processes that decode images, and on a CPU compute the features."""
    device: Annotated[str, tyro.conf.arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda, …"""
    quiet: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Hide progress."""

    def __call__(self) -> int:
        """Compute the features and write them; under torchrun, every process a part of them."""
        from tsadapt.training.launch import joined

        with joined() as processes:
            first = processes is None or processes.first
            with contextlib.nullcontext() if first else contextlib.redirect_stderr(io.StringIO()):
                return self._compute(processes)

    def _compute(self, processes: "Processes | None") -> int:
        import numpy as np
        import torch

        from tsadapt.data.open import open_dataset
        from tsadapt.data.transforms import Framing
        from tsadapt.data.types import match_labels
        from tsadapt.errors import UserError, printable
        from tsadapt.models.agreement import feature_precision
        from tsadapt.models.encoders import find_backbone
        from tsadapt.models.networks import Architecture
        from tsadapt.models.preprocessing import Preprocessing, Reader
        from tsadapt.training.runtime import has_fast_bf16, pick_device

        if self.workers is not None and self.workers < 0:
            raise UserError(f"workers is {self.workers}, expected zero or more.")
        check_output(self.out, self.data)
        if self.out != STREAM and self.out.suffix != ".npz":
            raise UserError(f"--out is {self.out}, expected a name ending in .npz.")
        data = open_dataset(self.data, roles=replace(self.roles, needed=("id",)))
        for note in dict.fromkeys((*data.train.notes, *data.train.recognised, *data.test.notes)):
            print(printable(f"note: {note}"), file=sys.stderr)
        if data.train.kind == "vector":
            raise UserError(f"{self.data} holds feature vectors already: expected images.")
        torch.manual_seed(0)
        backbone = find_backbone(self.backbone, self.weights, self.image_size)
        framing = Framing(backbone.size, backbone.resize, True, backbone.interpolation)
        architecture = Architecture("mlp", 0, backbone.dim)
        device = pick_device(self.device)
        precision = feature_precision(self.feature_precision, backbone, device, has_fast_bf16(device))
        preprocessing = Preprocessing(backbone, framing, frozen=True, precision=precision)
        reader = Reader(architecture, preprocessing, device, self.workers, self.quiet, processes=processes)
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
        if processes is not None and not processes.first:
            return 0
        with output(self.out, self.data, text=False) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        kept = sum(len(x) for key, x in arrays.items() if key.endswith("x"))
        print(printable(f"{kept} × {backbone.dim} features written to {self.out}"), file=sys.stderr)
        return 0
