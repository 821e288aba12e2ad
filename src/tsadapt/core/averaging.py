"""A moving average of a network's weights."""

import torch
from torch import nn

__all__ = ["average_weights"]


@torch.no_grad()
def average_weights(average: nn.Module, network: nn.Module, momentum: float) -> None:
    """w̄ ← m·w̄ + (1 − m)·w, in place, for every weight and running mean; counts are taken over as they are.

    Both modules have the same shape; m is `momentum`.

    >>> average, network = nn.Linear(1, 1), nn.Linear(1, 1)
    >>> _ = nn.init.constant_(average.weight, 0.0), nn.init.constant_(network.weight, 4.0)
    >>> average_weights(average, network, momentum=0.75)
    >>> average.weight.item()
    1.0
    """
    if not 0 <= momentum <= 1:
        raise ValueError(f"momentum is {momentum}, expected a number from 0 to 1.")
    new = network.state_dict()
    for name, old in average.state_dict().items():
        if old.is_floating_point():
            old.lerp_(new[name].to(old), 1 - momentum)
        else:
            old.copy_(new[name])
