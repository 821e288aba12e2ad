"""A batch whose rows lie in several processes: each sends its own through the network, and all see the whole.

Only the extractor works on rows apart. Its features are gathered, and heads and terms see all of them, in every process
alike: so they are written as if there were one process.

Shapes: B rows of a whole batch, n of them here, K features.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tsadapt.core.precision import full_precision
from tsadapt.core.processes import Processes
from tsadapt.data.types import Batch
from tsadapt.models.shared_rows import shared_rows

__all__ = ["WholeInputs", "gathered_batch", "through", "through_whole"]


def through(
    processes: Processes | None, network: Callable[[Tensor], Tensor], parts: Sequence[Tensor], sizes: Sequence[int]
) -> Tensor:
    """The features (B, K) of all rows, those of each domain after the other, of which `parts` (n, …) are here.

    `sizes` are the rows of each domain in all processes. They go through the network together.
    """
    with full_precision(parts[0]):  # autocast does not join what is stored in another half precision
        own = parts[0] if len(parts) == 1 else torch.cat([*parts])
    if processes is None:
        return network(own)
    with shared_rows(processes, sizes):
        features = network(own)
    pieces = torch.split(features, [len(part) for part in parts])
    whole = [processes.gather_rows(piece, size) for piece, size in zip(pieces, sizes, strict=True)]
    return whole[0] if len(whole) == 1 else torch.cat(whole)


def through_whole(processes: Processes | None, network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The features (B, K) of rows (B, …) that every process has, each computed by one of them."""
    own = x if processes is None else x[processes.block(len(x))]
    return through(processes, network, [own], [len(x)])


def gathered_batch(processes: Processes, batch: Batch, sizes: tuple[int, int]) -> Batch:
    """A batch with the indices and labels of all rows, `sizes` of each domain; its inputs are still this process's."""
    parts = [batch.i_s, batch.y_s] + ([] if batch.i_t is None else [batch.i_t])
    wholes = [sizes[0], sizes[0], sizes[1]][: len(parts)]
    every = [processes.sizes(size) for size in wholes]
    found = processes.collect(torch.cat(parts), [sum(each) for each in zip(*every, strict=True)])
    # What came of each process lies together: put the parts of a kind together instead.
    pieces = torch.split(found, [size for each in zip(*every, strict=True) for size in each])
    kinds = [torch.cat(pieces[kind :: len(parts)]) for kind in range(len(parts))]
    return replace(batch, i_s=kinds[0], y_s=kinds[1], i_t=kinds[2] if len(parts) > 2 else None)


class WholeInputs(Sequence[Tensor | None]):
    """What came into the network, of the source and of the target, gathered when a term first asks for it."""

    def __init__(self, processes: Processes, parts: Sequence[Tensor | None], sizes: Sequence[int]) -> None:
        self._processes, self._parts, self._sizes = processes, [*parts], sizes
        self._found: dict[int, Tensor | None] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, role: int) -> Tensor | None:  # type: ignore[override]
        if role not in self._found:
            part = self._parts[role]
            self._found[role] = None if part is None else self._processes.gather_rows(part, self._sizes[role])
        return self._found[role]

    def __iter__(self) -> Iterator[Tensor | None]:
        return (self[role] for role in range(len(self)))
