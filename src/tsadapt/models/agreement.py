"""Whether a backbone gives the same features in bfloat16 as in float32, measured on photographs; and what follows."""

import contextlib
import json

import numpy as np
import torch
from torch import Tensor

from tsadapt.cache import cache_root
from tsadapt.config import FeaturePrecision
from tsadapt.data.rows import as_rows
from tsadapt.data.transforms import Framing, evaluation_transform
from tsadapt.files import write_atomically
from tsadapt.models.backbones import Backbone
from tsadapt.models.inference import REVISION, FrozenNetwork

__all__ = ["AGREE", "agreement", "feature_precision"]

AGREE = 0.9999
"""The least cosine between features in bfloat16 and in float32 with which bfloat16 is the default.

The photographs are easy. Of MobileNetV2, at 0.9998 on them, Office-31 has cosines of 0.9985, and 0.9 % of its
predictions change; of ResNet-50, at 0.99997, 0.9998 and 0.3 %.
"""


def feature_precision(
    asked: FeaturePrecision | None, backbone: Backbone, device: torch.device, fast: bool
) -> FeaturePrecision:
    """The precision that is asked for; else bfloat16 where a CPU is `fast` in it and the features agree."""
    if asked is not None:
        return asked
    if device.type != "cpu":
        return "fp32"
    return "bf16" if fast and agreement(backbone) >= AGREE else "fp32-fused"


def agreement(backbone: Backbone) -> float:
    """The least cosine between the features of six photographs in bfloat16 and in float32.

    They are parts of the two that come with scikit-learn. What is found is kept beside the cached features.
    """
    kept = cache_root() / "agreement" / f"{backbone.fingerprint()}-{backbone.size}-{torch.__version__}-{REVISION}.json"
    try:
        return float(json.loads(kept.read_text(encoding="utf-8"))["cosine"])
    except (OSError, ValueError, KeyError, TypeError):  # not there, or damaged
        found = _agreement(backbone)
    with contextlib.suppress(OSError):  # no cache: measured again the next time
        write_atomically(kept, json.dumps({"backbone": backbone.name, "cosine": found}).encode())
    return found


def _agreement(backbone: Backbone) -> float:
    cpu, x = torch.device("cpu"), _photographs(backbone)
    plain, fast = FrozenNetwork(backbone, cpu, "fp32")(x), FrozenNetwork(backbone, cpu, "bf16")(x)
    cosine = torch.cosine_similarity(plain.double(), fast.double())
    return float(cosine.min()) if bool(cosine.isfinite().all()) else 0.0


def _photographs(backbone: Backbone) -> Tensor:
    """Three squares of each of two photographs, (6, 3, size, size)."""
    from sklearn.datasets import load_sample_images

    view = evaluation_transform(Framing(backbone.size, backbone.resize, True, backbone.interpolation))
    found = []
    for image in load_sample_images().images:
        pixels = as_rows(np.ascontiguousarray(image.transpose(2, 0, 1)))
        side, width = pixels.shape[1:]
        found += [view(pixels[:, :, left : left + side]) for left in (0, (width - side) // 2, width - side)]
    return torch.stack(found)
