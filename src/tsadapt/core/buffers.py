"""A module whose buffers keep their precision."""

from typing import Any, Self

from torch import Tensor, nn

__all__ = ["PreciseBuffers"]


class PreciseBuffers(nn.Module):
    """A module without parameters whose buffers follow moves between devices, and no change of dtype.

    `model.half()` or `model.bfloat16()` would otherwise round running sums that nothing can restore.

    One that `stays` follows no move either.
    """

    stays = False

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        for name, buffer in self._buffers.items():
            if self.stays:
                break
            if isinstance(buffer, Tensor):
                device = fn(buffer.new_empty(0)).device
                self._buffers[name] = buffer.to(device)
        return self
