"""A network on some rows of a batch whose other rows are in other processes: normalised and dropped out as a whole.

Inside `shared_rows` every batch normalisation in training takes its statistics from the rows of all processes, and what
dropout draws for a row is what it would draw with all rows in one process. Whose layers they are does not matter: the
functions are replaced, and the modules stay as they are.

Shapes: n rows here, N in all processes, C channels.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from tsadapt.core.processes import Processes

__all__ = ["shared_rows"]

DROPOUTS: tuple[Callable[..., Tensor], ...] = (
    F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout
)  # fmt: skip


def shared_rows(processes: Processes, sizes: Sequence[int]) -> AbstractContextManager[object]:
    """The context in which a network computes this process's rows.

    `sizes` are the rows of each domain that go through the network together, in all processes; of each this process has
    its block, one after the other.
    """
    return _SharedRows(processes, sizes)


class _SharedRows(TorchFunctionMode):
    def __init__(self, processes: Processes, sizes: Sequence[int]) -> None:
        super().__init__()
        self.processes, self.total = processes, sum(sizes)
        every, parts = torch.arange(self.total), list[Tensor]()
        for of_domain in torch.split(every, [*sizes]):
            parts.append(of_domain[processes.block(len(of_domain))])
        self.rows = torch.cat(parts)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.batch_norm:
            return self._batch_norm(*args, **kwargs)
        if func in DROPOUTS and self._is_batch(args[0]):
            return self._dropout(func, *args, **kwargs)
        if func is Tensor.bernoulli_ and self._is_batch(args[0]):  # stochastic depth draws for each row
            drawn = func(self._whole(args[0]), *args[1:], **kwargs)
            return args[0].copy_(self._own(drawn))
        return func(*args, **kwargs)

    def _is_batch(self, x: Tensor) -> bool:
        return x.ndim > 0 and x.shape[0] == len(self.rows)

    def _whole(self, x: Tensor) -> Tensor:
        """A tensor of ones as large as `x` would be with the rows of all processes, and lies in memory like it."""
        ones = x.new_ones(self.total, *x.shape[1:])
        last = x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
        return ones.contiguous(memory_format=torch.channels_last) if last else ones

    def _own(self, whole: Tensor) -> Tensor:
        return whole.index_select(0, self.rows.to(whole.device))

    def _dropout(
        self, func: Callable[..., Tensor], x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if not training or p == 0:
            return func(x, p, training, inplace)
        if func in (F.alpha_dropout, F.feature_alpha_dropout):  # adds to what is dropped: not a factor of each value
            padded = self._whole(x).index_copy(0, self.rows.to(x.device), x)
            return self._own(func(padded, p, training))
        with torch.no_grad():
            factors = self._own(func(self._whole(x.detach()), p, training))
        return x.mul_(factors) if inplace else x * factors

    def _batch_norm(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if not training:
            return F.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
        function: Any = _SharedNorm
        y, mean, variance, count = function.apply(x, weight, bias, eps, self.processes)
        with torch.no_grad():
            if running_mean is not None:
                running_mean.lerp_(mean.to(running_mean), momentum)
            if running_var is not None:
                unbiased = variance * (count / (count - 1).clamp_min(1))
                running_var.lerp_(unbiased.to(running_var), momentum)
        return cast("Tensor", y)


class _SharedNorm(torch.autograd.Function):
    """Batch normalisation by the rows of all processes; also mean and variance (C,) and how many values they are of."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, processes: Processes
    ) -> tuple[Tensor, ...]:
        # By the fused functions: elementwise ones take as long as the rest of a small network.
        f = x.to(torch.promote_types(x.dtype, torch.float32))
        n = f.numel() // max(f.shape[1], 1)
        mean, variance = torch.batch_norm_update_stats(f, None, None, 0.0) if n else f.new_zeros(2, f.shape[1])
        squares = n * variance
        # Counts, means and squares of each process, merged exactly.
        table = torch.cat([mean.new_full((1,), n), mean, squares])[None]
        table = processes.collect(table, [1] * processes.number).double()
        counts, means, within = table[:, :1], *table[:, 1:].chunk(2, 1)
        count = counts.sum()
        mean = (counts * means).sum(0) / count
        variance = (within + counts * (means - mean).square()).sum(0) / count
        mean, variance = mean.to(f), variance.to(f)
        gain, offset = (None if of is None else of.to(f) for of in (weight, bias))
        y = F.batch_norm(f, mean, variance, gain, offset, False, 0.0, eps)
        cast("Any", ctx).save_for_backward(x, weight, mean, variance, count)
        cast("Any", ctx).processes, cast("Any", ctx).eps = processes, eps
        out = y.to(x.dtype), mean, variance, count
        cast("Any", ctx).mark_non_differentiable(*out[1:])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance, count = cast("Any", ctx).saved_tensors
        eps, f = cast("Any", ctx).eps, x.to(mean)
        gain = torch.ones_like(mean) if weight is None else weight.to(mean)
        back, *sums = torch.ops.aten.native_batch_norm_backward(
            grad.to(mean), f, gain, mean, variance, None, None, False, eps, [True, True, True]
        )
        own = torch.stack(sums[::-1])  # of g, and of g times what was normalised
        total = (cast("Any", ctx).processes.sum(own) / count).to(mean) * (gain * (variance + eps).rsqrt())
        back.sub_(F.batch_norm(f, mean, variance, total[1], total[0], False, 0.0, eps))
        needs = cast("Any", ctx).needs_input_grad
        return (
            back.to(x.dtype),
            own[1].to(weight.dtype) if weight is not None and needs[1] else None,
            own[0].to(weight.dtype) if weight is not None and needs[2] else None,
            None, None,
        )  # fmt: skip
