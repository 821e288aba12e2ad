"""The rows of each training step: a function of seed and step, so that a run can resume at any step."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from tsadapt.data.stored import StoredRows
from tsadapt.data.transforms import seen, strong_transform
from tsadapt.data.types import Batch, Domain

__all__ = [
    "PairedBatches",
    "RowStream",
    "labelled_stream",
    "labels_of",
    "mixed",
    "paired_streams",
    "pass_over",
    "seeded",
]


class RowStream:
    """An endless stream of row numbers: in each epoch all rows, in a new random order.

    With `weights`, a row comes in each epoch as often as its share of the weights times the number of rows, up or down
    to a whole number. Equal weights change nothing.

    >>> stream = RowStream(rows=3, batch=2, seed=0, salt=1)
    >>> sorted(torch.cat([stream.rows_at(1), stream.rows_at(2), stream.rows_at(3)]).tolist())
    [0, 0, 1, 1, 2, 2]
    """

    def __init__(self, rows: int, batch: int, seed: int, salt: int, weights: Tensor | None = None) -> None:
        self.rows, self.batch, self.seed, self.salt = rows, batch, seed, salt
        self._ends = None if weights is None else weights.double().cumsum(0) / weights.double().sum() * rows
        self._orders: dict[int, Tensor] = {}

    def rows_at(self, step: int) -> Tensor:
        """The rows of step 1, 2, …"""
        if not self.batch:
            return torch.zeros(0, dtype=torch.int64)
        parts, place, end = [], (step - 1) * self.batch, step * self.batch
        while place < end:
            epoch, offset = divmod(place, self.rows)
            parts.append(self._order(epoch)[offset : offset + end - place])
            place += len(parts[-1])
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _order(self, epoch: int) -> Tensor:
        if epoch not in self._orders:
            generator = seeded(self.seed, self.salt, epoch)
            order = torch.randperm(self.rows, generator=generator)
            if self._ends is not None:  # systematic sampling: equidistant places in the cumulated weights
                places = torch.arange(self.rows) + torch.rand(1, dtype=torch.float64, generator=generator)
                drawn = torch.searchsorted(self._ends, places, right=True).clamp_(max=self.rows - 1)
                order = drawn[order]
            self._orders = {epoch: order}
        return self._orders[epoch]


class PairedBatches:
    """Batches of two domains in memory, or stored; `with_target=False` leaves out the target rows.

    Without a source (None) the batches are of the target alone. With `second`, training sees small images of the
    target, and what is stored of images, in a second view too. `own` says which rows of so many a batch holds, where
    the others are another process's. `labelled` are target rows that are trained on with their labels, and come in a
    stream of their own.
    """

    def __init__(
        self,
        source: Domain | None,
        target: Domain,
        streams: tuple[RowStream, RowStream],
        with_target: bool,
        second: bool = False,
        own: Callable[[int], slice] | None = None,
        labelled: Domain | None = None,
    ) -> None:
        self.x_s: Tensor | StoredRows = torch.zeros(0)
        self.y_s, self.x_t = labels_of(source), _rows_of(target)
        if source is not None:
            self.x_s = _rows_of(source)
        self.streams, self.with_target, self.second, self.own = streams, with_target, second, own
        small = isinstance(self.x_t, Tensor) and self.x_t.ndim == 4 and self.x_t.dtype == torch.uint8
        self.y_l = labels_of(labelled)
        self.x_l: Tensor | StoredRows = torch.zeros(0) if labelled is None else _rows_of(labelled)
        self.few = None if labelled is None else labelled_stream(labelled, streams)
        self._strong = strong_transform() if second and small else None

    def at(self, step: int) -> Batch:
        """The batch of step 1, 2, …"""
        batch = self._rows(self.streams, step, step)
        if self.few is None:
            return batch
        i_l = self.few.rows_at(step)
        return replace(batch, x_l=self._taken(2, i_l, slice(None), step), y_l=self.y_l.index_select(0, i_l))

    def all_rows(self) -> Iterator[Batch]:
        """Batches with every row of both domains at least once, in another order than in training."""
        streams, steps = pass_over(self.streams)
        return (self._rows(streams, step) for step in range(1, steps + 1))

    def _rows(self, streams: tuple[RowStream, RowStream], step: int, trained: int | None = None) -> Batch:
        """The batch of a step; with `trained`, stored rows in the views of that step of training."""
        i_s, own = streams[0].rows_at(step), self._own(streams[0].batch)
        x_s, y_s = self._taken(0, i_s, own, trained), self.y_s.index_select(0, i_s[own])
        if not self.with_target:
            return Batch(x_s, y_s, i_s[own], None, None)
        i_t, mine = streams[1].rows_at(step), self._own(streams[1].batch)
        second = None if trained is None or not self.second else self._second(i_t, mine, trained)
        return Batch(x_s, y_s, i_s[own], self._taken(1, i_t, mine, trained), i_t[mine], second)

    def _own(self, rows: int) -> slice:
        return slice(None) if self.own is None else self.own(rows)

    def _taken(self, role: int, rows: Tensor, own: slice, trained: int | None) -> Tensor:
        x = (self.x_s, self.x_t, self.x_l)[role]
        if isinstance(x, Tensor):
            return x.index_select(0, rows[own])
        if trained is None:
            return x[rows[own]]
        return x.seen(rows[own], self._views(role, len(rows), trained)[own].tolist())

    def _views(self, role: int, rows: int, step: int) -> Tensor:
        """The numbers of the views of stored rows in a step of training."""
        return torch.randint(0, 2**31, (rows,), generator=seeded(self.streams[1].seed, 6, role, step))

    def _second(self, rows: Tensor, own: slice, step: int) -> Tensor | None:
        """Rows of the target in a second view, if they have one; a stored one is never the first."""
        x, seed = self.x_t, mixed(self.streams[1].seed, 11, step)
        if isinstance(x, Tensor):
            if self._strong is None:
                return None
            images = zip([*range(len(rows))][own], x.index_select(0, rows[own]), strict=True)
            return torch.stack([seen(self._strong, image, mixed(seed, slot)) for slot, image in images])
        if x.views < 2:
            raise ValueError(f"a second view needs two stored views, found {x.views}")
        apart = torch.randint(1, x.views, (len(rows),), generator=seeded(seed))
        return x.seen(rows[own], (self._views(1, len(rows), step) % x.views + apart)[own].tolist())


def labels_of(source: Domain | None) -> Tensor:
    """The labels of a source; none where there is no source."""
    if source is None:
        return torch.zeros(0, dtype=torch.int64)
    if source.y is None:
        raise ValueError("the source needs labels")
    return source.y


def _rows_of(domain: Domain) -> Tensor | StoredRows:
    return domain.x if isinstance(domain.x, StoredRows) else domain.tensor


def paired_streams(
    source: Domain | None, target: Domain, batch_sizes: tuple[int, int], seed: int
) -> tuple[RowStream, RowStream]:
    """The streams of row numbers of two domains; without a source the first is empty."""
    first = RowStream(0, 0, seed, salt=0)
    if source is not None:
        first = RowStream(len(source), batch_sizes[0], seed, salt=0, weights=source.weights)
    return first, RowStream(len(target), batch_sizes[1], seed, salt=1)


def labelled_stream(labelled: Domain, streams: tuple[RowStream, RowStream]) -> RowStream:
    """The stream of the labelled target rows: at most a batch of the target at a time."""
    return RowStream(len(labelled), min(len(labelled), streams[1].batch), streams[1].seed, salt=21)


def pass_over(streams: tuple[RowStream, RowStream]) -> tuple[tuple[RowStream, RowStream], int]:
    """Streams of the same rows in another order, and the number of steps that cover all rows of both."""
    a, b = (RowStream(s.rows, s.batch, s.seed, s.salt + 5) for s in streams)
    return (a, b), max(-(-s.rows // s.batch) for s in streams if s.batch)


def seeded(*numbers: int) -> torch.Generator:
    """A random generator whose seed depends on all the numbers."""
    return torch.Generator().manual_seed(mixed(*numbers))


def mixed(*numbers: int) -> int:
    """One seed from several numbers; their order matters."""
    seed = 0
    for number in numbers:
        # The multiplier of a 64-bit linear congruential generator (Knuth): similar numbers give very different seeds.
        seed = (seed * 6364136223846793005 + number + 1442695040888963407) % 2**63
    return seed
