"""Several processes that compute as one: rows gathered, tables summed, both with gradients.

Each process computes some rows of a batch; what depends on the whole batch all of them compute alike, from the rows
gathered. So every process has the same loss, and a gradient is the mean of what the processes have, as
`DistributedDataParallel` takes it: what all have alike counts once. A row, or a summand, that one process alone has
computed gets the gradient times the number of processes there, and counts once in the mean as well.

Shapes: B rows of a whole batch, n of them here, K features.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Self, cast

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import FunctionCtx, once_differentiable

__all__ = ["Processes", "block_sizes"]


class Processes:
    """The processes of a group, each of which makes the same calls in the same order.

    `group` is one of torch.distributed, None the default one. Rows are dealt in blocks, in the order of the ranks.
    """

    def __init__(self, group: distributed.ProcessGroup | None = None) -> None:
        self.group = group
        self.rank, self.number = distributed.get_rank(group), distributed.get_world_size(group)
        if self.rank < 0:
            raise ValueError("this process is not in the process group")

    @classmethod
    def here(cls, group: distributed.ProcessGroup | None = None) -> Self | None:
        """The processes of a group that is up; None where there is none, or one process."""
        if not distributed.is_available() or not distributed.is_initialized():
            return None
        found = cls(group)
        return found if found.number > 1 else None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy of a module has the same processes."""
        return self

    @property
    def first(self) -> bool:
        """Whether this is the process that speaks and writes."""
        return self.rank == 0

    def sizes(self, rows: int) -> list[int]:
        """How many of a number of rows each process has; they differ by one at most."""
        return block_sizes(rows, self.number)

    def block(self, rows: int) -> slice:
        """Which of them this process has."""
        return slice(self.rank * rows // self.number, (self.rank + 1) * rows // self.number)

    def gather(self, x: Tensor, sizes: list[int]) -> Tensor:
        """The rows of all processes (B, …) one after the other, of which `x` (n, …) is here; `sizes` has each n.

        The gradient comes back to this process's rows.
        """
        return cast("Tensor", _Gather.apply(x, self, sizes))  # type: ignore[no-untyped-call]

    def gather_rows(self, x: Tensor, rows: int) -> Tensor:
        """The same of `rows` rows that are dealt in blocks."""
        return self.gather(x, self.sizes(rows))

    def sum(self, x: Tensor) -> Tensor:
        """The sum over the processes of tensors of one shape. The gradient comes back to this process's summand."""
        return cast("Tensor", _Sum.apply(x, self))  # type: ignore[no-untyped-call]

    def mean_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Give every parameter that has a gradient the mean of its gradients."""
        grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for grad, mean in zip(grads, self.means(grads), strict=True):
            grad.copy_(mean)

    def means(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The mean over the processes of each tensor, with as few messages as there are dtypes."""
        found = [*tensors]
        kinds = {(tensor.device, tensor.dtype) for tensor in tensors}
        for kind in sorted(kinds, key=str):
            some = [i for i, tensor in enumerate(tensors) if (tensor.device, tensor.dtype) == kind]
            whole = torch.cat([tensors[i].reshape(-1) for i in some])
            distributed.all_reduce(whole, group=self.group)
            whole /= self.number
            parts = torch.split(whole, [tensors[i].numel() for i in some])
            for i, part in zip(some, parts, strict=True):
                found[i] = part.view(tensors[i].shape)
        return found

    def same(self, tensors: Iterable[Tensor]) -> None:
        """Give tensors, in place, the values that they have in the first process."""
        for tensor in tensors:
            held = tensor.detach().contiguous()
            distributed.broadcast(held, group=self.group, group_src=0)
            tensor.detach().copy_(held)

    def objects(self, value: Any) -> list[Any]:
        """What every process gives, in the order of the ranks: small Python objects."""
        found: list[Any] = [None] * self.number
        distributed.all_gather_object(found, value, group=self.group)
        return found

    def any(self, here: bool) -> bool:
        """Whether something is so in any of the processes."""
        flag = torch.tensor(float(here), device=self._device)
        distributed.all_reduce(flag, distributed.ReduceOp.MAX, group=self.group)
        return bool(flag)

    def wait(self) -> None:
        """Go on when all processes are here."""
        self.any(False)

    def collect(self, x: Tensor, sizes: list[int]) -> Tensor:
        """`gather` without a gradient."""
        # As bytes: not every backend knows every dtype.
        most = max(sizes)
        own = x.new_zeros(most, *x.shape[1:])
        own[: x.shape[0]] = x.detach()
        parts = [torch.empty_like(own) for _ in sizes]
        distributed.all_gather([_bytes(part) for part in parts], _bytes(own), group=self.group)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @property
    def _device(self) -> torch.device:
        backend = distributed.get_backend(self.group)
        return torch.device("cuda" if backend == "nccl" else "cpu")


def block_sizes(rows: int, number: int) -> list[int]:
    """The sizes of the blocks in which rows are dealt to a number of processes.

    >>> block_sizes(5, 3)
    [1, 2, 2]
    """
    return [(rank + 1) * rows // number - rank * rows // number for rank in range(number)]


def _bytes(x: Tensor) -> Tensor:
    return x.reshape(-1).view(torch.uint8)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, processes: Processes, sizes: list[int]) -> Tensor:
        start = sum(sizes[: processes.rank])
        cast("Any", ctx).own = slice(start, start + x.shape[0]), processes.number
        return processes.collect(x, sizes)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None]:
        own, number = cast("Any", ctx).own
        return grad[own] * number, None, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, processes: Processes) -> Tensor:
        cast("Any", ctx).number = processes.number
        total = x.detach().clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total, group=processes.group)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        return grad * cast("Any", ctx).number, None
