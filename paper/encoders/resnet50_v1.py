"""ResNet-50 as it was published (v1): a stage halves its images in the first 1×1 convolution, torchvision's in the 3×3.

tsadapt features office31:amazon --backbone paper/encoders/resnet50_v1.py:resnet50_v1 --weights FILE --out amazon.npz
"""

from typing import Any

from torch import nn

from tsadapt.vision import load_torchvision

__all__ = ["resnet50_v1"]


def resnet50_v1() -> nn.Module:
    """Images (B, 3, 224, 224) to 2,048 features; weights have torchvision's names."""
    load_torchvision()
    from torchvision.models import resnet50

    network: Any = resnet50(weights=None)
    for stage in (network.layer2, network.layer3, network.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    network.fc = nn.Identity()
    network.mean, network.std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    network.size, network.resize, network.interpolation = 224, 256, "bilinear"
    made: nn.Module = network
    return made
