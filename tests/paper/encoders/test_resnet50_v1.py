"""ResNet-50 v1 gives the features that were computed elsewhere with the network as it was published."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from paper.encoders import resnet50_v1

from tsadapt.data.in_memory import as_dataset
from tsadapt.data.transforms import Framing
from tsadapt.models.encoders import find_backbone
from tsadapt.models.features import extract

DATA = Path(os.environ.get("TSADAPT_DATA") or "nowhere")
WEIGHTS = DATA / "weights" / "resnet50-v1.safetensors"
ENCODER = f"{resnet50_v1.__file__}:resnet50_v1"


def test_a_stage_is_halved_by_its_first_convolution():
    """Against a 1×1 at full size, and a 3×3 that is halved and dilated by 2: the same pixels are looked at."""
    torch.manual_seed(0)
    block = resnet50_v1.resnet50_v1().layer2[0].eval()
    x = torch.randn(2, 256, 12, 12)
    with torch.no_grad():
        ours = block.conv2(block.conv1(x))
        whole = torch.nn.functional.conv2d(x, block.conv1.weight)
        dilated = torch.nn.functional.conv2d(whole, block.conv2.weight, stride=2, padding=2, dilation=2)
    torch.testing.assert_close(ours, dilated, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not WEIGHTS.is_file(), reason="needs Office-31 and a ResNet-50 in TSADAPT_DATA")
@pytest.mark.parametrize("domain", ["amazon", "dslr"])
def test_features_of_office31_are_those_that_were_published_with_the_images(domain, tmp_path, monkeypatch):
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path))
    folder = DATA / "office31" / domain / "images"
    paths = [path for kind in sorted(folder.iterdir()) for path in sorted(kind.iterdir())]
    expected = np.load(DATA / "features" / f"office31-resnet50_{domain}.npz")["x"].astype(np.float32)
    assert len(paths) == len(expected)
    rows = [0, len(paths) // 2, len(paths) - 1]
    backbone = find_backbone(ENCODER, str(WEIGHTS))
    framing = Framing(backbone.size, backbone.resize, True, backbone.interpolation)
    assert (backbone.dim, framing) == (2048, Framing(224, 256, True, "bilinear"))
    images = as_dataset([paths[row] for row in rows]).train.x
    found = extract(images, backbone, framing, torch.device("cpu"), workers=0, quiet=True).x.numpy()
    np.testing.assert_allclose(found, expected[rows], rtol=2e-3, atol=2e-3)  # they are kept in float16
