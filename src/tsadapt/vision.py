"""torchvision, imported so that it works beside a torch that is built for another device."""

import sys
from types import ModuleType
from typing import Any

__all__ = ["load_torchvision"]

_declared: list[Any] = []
"""The operators declared here; torch forgets them when nothing holds them."""


def load_torchvision() -> ModuleType:
    """The package torchvision.

    A torchvision built for CUDA beside a CPU build of torch cannot load its compiled operators, and its import stops at
    the first one it registers ("operator torchvision::nms does not exist"). Networks and transforms need none of them,
    so it is enough to declare those two and import again. Where torchvision imports by itself, nothing is done.
    """
    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        import torch

        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)
        import torchvision
    return torchvision  # type: ignore[no-any-return]
