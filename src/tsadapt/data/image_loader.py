"""Images decoded and transformed by worker processes; order and randomness do not depend on the workers.

Shapes: B images of a batch, (B, 3, size, size) as uint8.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from tsadapt.data.images import Images, UnreadableImageError
from tsadapt.data.loader import RowStream, labelled_stream, labels_of, mixed, pass_over
from tsadapt.data.transforms import Transform, seen
from tsadapt.data.types import Batch, Domain
from tsadapt.errors import UserError

__all__ = ["ImageBatches", "ImagePass", "Views", "computes_in_workers", "grouped", "image_pass", "workers_here"]

TRIES = 50
"""Random replacements tried for an unreadable image, before all images are tried in order."""


@dataclass(frozen=True)
class Views:
    """Transforms for training and evaluation, the shortest side to decode, and the number of worker processes.

    `second` gives training another view of each target image; None where nothing asks for it.
    """

    train: Transform
    test: Transform
    at_least: int
    workers: int
    second: Transform | None = None


@dataclass(frozen=True)
class ImagePass:
    """A group of decoded images: row numbers and pixels of the readable ones, and reasons for the others."""

    rows: list[int]
    x: Tensor
    unreadable: dict[int, str]


def workers_here(asked: int | None, images: int, most: int = 8) -> int:
    """The number of worker processes: as asked, else one per core up to `most`; none for fewer than 64 images."""
    if asked is not None:
        return asked
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 0 if images < 64 else min(cores, most)


def computes_in_workers(device: torch.device) -> bool:
    """Whether a network can compute in the workers: on a CPU, where they are forked and have it already."""
    return device.type == "cpu" and sys.platform == "linux"


def grouped(rows: range, size: int) -> list[range]:
    """Rows in groups of `size`; the last one may be smaller.

    >>> grouped(range(3, 8), 3)
    [range(3, 6), range(6, 8)]
    """
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def image_pass(
    images: Images,
    groups: Iterable[range],
    transform: Transform,
    at_least: int,
    workers: int,
    seed: int | None = None,
    then: Transform | None = None,
) -> Iterator[ImagePass]:
    """Decode images group by group; unreadable ones are left out and listed with the reason.

    What is random in the transform is a function of `seed` and the row; None: nothing is. `then` takes the images of a
    group together, channels last, in the worker: its outcome comes in their place.
    """
    join = _join_pass if then is None else partial(_join_and, then)
    yield from _watched(_loader(_Decoded(images, transform, at_least, seed), groups, join, workers))


class ImageBatches:
    """Batches of two domains of image files, or of a target alone; the counterpart of `PairedBatches`.

    `labelled` are target rows that are trained on with their labels, a third role beside source and target.

    A batch is a function of (seed, step): each image has its own seed for the random transforms. Workers prepare
    consecutive steps ahead, up to `last`. An unreadable image is replaced by another one of its domain, and listed in
    the batch. `own` says which rows of so many a batch holds, where the others are another process's.
    """

    def __init__(
        self,
        source: Domain | None,
        target: Domain,
        streams: tuple[RowStream, RowStream],
        with_target: bool,
        views: Views,
        last: int,
        own: Callable[[int], slice] | None = None,
        labelled: Domain | None = None,
    ) -> None:
        first = target if source is None else source  # whose stream is empty without a source
        if not isinstance(first.x, Images) or not isinstance(target.x, Images):
            raise ValueError("expected two domains of images")
        self.domains: tuple[Domain, ...] = (first, target)
        self.with_target, self.y_s = with_target, labels_of(source)
        self.streams, self.views, self.last, self.own = streams, views, last, own
        self._images: dict[int, Images] = {0: first.x} | ({1: target.x} if with_target else {})
        self._streams: dict[int, RowStream] = dict(enumerate(streams[: len(self._images)]))
        self.y_l = labels_of(labelled)
        if labelled is not None:
            assert isinstance(labelled.x, Images)
            self.domains = (*self.domains, labelled)
            self._images[2], self._streams[2] = labelled.x, labelled_stream(labelled, streams)
        self._next: int | None = None
        self._iterator: Iterator[Any] = iter(())

    def at(self, step: int) -> Batch:
        """The batch of step 1, 2, …"""
        if step != self._next:
            self._iterator = iter(self._steps(self._streams, step, self.last, self.views.train, self.views.second))
        self._next = step + 1
        return self._batch(next(self._iterator))

    def all_rows(self) -> Iterator[Batch]:
        """Batches with every row of both domains at least once, with the evaluation transform."""
        streams, last = pass_over(self.streams)
        roles = {role: stream for role, stream in enumerate(streams) if role in self._images}
        for joined in self._steps(roles, 1, last, self.views.test):
            yield self._batch(joined)

    def _steps(
        self, streams: dict[int, RowStream], first: int, last: int, view: Transform, second: Transform | None = None
    ) -> Any:
        dataset = _Replaced(self._images, view, self.views.at_least, second)
        steps = _Steps(streams, first, last, self.own)
        return _watched(_loader(dataset, steps, _join_samples, self.views.workers))

    def _batch(self, joined: "_Joined") -> Batch:
        domains = self.domains
        if joined.lost is not None:
            why = joined.unreadable[-1][2]
            raise UserError(
                f"No image of {domains[joined.lost].name} can be read. The last error: {why}. Check that the files"
                " still exist."
            )
        unreadable = {
            f"{domains[role].name}: {domains[role].row_name(row)}": why for role, row, why in joined.unreadable
        }
        b, rows = joined.source, torch.tensor(joined.rows)
        few = sum(role == 2 for role in joined.roles)
        end = len(rows) - few
        i_s, i_t = rows[:b], rows[b:end] if self.with_target else None
        x_t = None if i_t is None else joined.x[b:end]
        x_l, y_l = (joined.x[end:], self.y_l[rows[end:]]) if few else (None, None)
        return Batch(joined.x[:b], self.y_s[i_s], i_s, x_t, i_t, joined.second, x_l, y_l, unreadable)


@dataclass(frozen=True)
class _Sample:
    role: int
    row: int
    x: Tensor | None
    second: Tensor | None
    unreadable: dict[int, str]


@dataclass(frozen=True)
class _Joined:
    """The samples of a step in one tensor, role by role, `source` of the source; `lost`: a role that cannot be read."""

    x: Tensor
    second: Tensor | None
    rows: list[int]
    roles: list[int]
    source: int
    unreadable: list[tuple[int, int, str]]
    lost: int | None


def _join_samples(samples: list[_Sample]) -> _Joined:
    lost = next((s for s in samples if s.x is None), None)
    if lost is not None:
        return _Joined(
            torch.empty(0), None, [], [], 0, [(lost.role, row, why) for row, why in lost.unreadable.items()], lost.role
        )
    second = [s.second for s in samples if s.second is not None]
    return _Joined(
        torch.stack([s.x for s in samples if s.x is not None]),
        torch.stack(second) if second else None,
        [s.row for s in samples],
        [s.role for s in samples],
        sum(s.role == 0 for s in samples),
        [(s.role, row, why) for s in samples for row, why in s.unreadable.items()],
        None,
    )


def _join_pass(decoded: "list[tuple[int, Tensor | str]]") -> ImagePass:
    found = {row: x for row, x in decoded if isinstance(x, Tensor)}
    x = torch.stack([*found.values()]) if found else torch.empty(0)
    return ImagePass([*found], x, {row: x for row, x in decoded if not isinstance(x, Tensor)})


def _join_and(then: Transform, decoded: "list[tuple[int, Tensor | str]]") -> ImagePass:
    found = {row: x for row, x in decoded if isinstance(x, Tensor)}
    unreadable = {row: x for row, x in decoded if not isinstance(x, Tensor)}
    if not found:
        return ImagePass([], torch.empty(0), unreadable)
    together = torch.stack([x.permute(1, 2, 0) for x in found.values()]).permute(0, 3, 1, 2)
    return ImagePass([*found], then(together), unreadable)


class _Steps:
    """The keys (role, row, seed) of the images of each step."""

    def __init__(
        self, streams: dict[int, RowStream], first: int, last: int, own: Callable[[int], slice] | None
    ) -> None:
        self.streams, self.first, self.last = streams, first, last
        self.slots = {role: slice(None) if own is None else own(stream.batch) for role, stream in streams.items()}

    def __iter__(self) -> Iterator[list[tuple[int, int, int]]]:
        for step in range(self.first, self.last + 1):
            yield [
                (role, row, mixed(stream.seed, 6, role, step, slot))
                for role, stream in self.streams.items()
                for slot, row in [*enumerate(stream.rows_at(step).tolist())][self.slots[role]]
            ]


class _Replaced(TorchDataset[_Sample]):
    """The image of a key, or a random readable image of the same domain (a function of the key's seed).

    A `second` view is for images of the target alone.
    """

    def __init__(self, images: dict[int, Images], view: Transform, at_least: int, second: Transform | None) -> None:
        self.images, self.view, self.at_least, self.second = images, view, at_least, second

    def __getitem__(self, key: tuple[int, int, int]) -> _Sample:
        role, first, seed = key
        images, unreadable = self.images[role], dict[int, str]()
        others = (mixed(seed, i) % len(images) for i in range(TRIES))
        for row in chain([first], others, range(len(images))):
            if row in unreadable:
                continue
            try:
                image = images.decode(row, self.at_least)
            except UnreadableImageError as error:
                unreadable[row] = str(error)
                continue
            second = seen(self.second, image, mixed(seed, TRIES)) if self.second is not None and role == 1 else None
            return _Sample(role, row, seen(self.view, image, seed), second, unreadable)
        return _Sample(role, first, None, None, unreadable)


class _Decoded(TorchDataset["tuple[int, Tensor | str]"]):
    """The image of a row, or the reason why it cannot be read."""

    def __init__(self, images: Images, view: Transform, at_least: int, seed: int | None) -> None:
        self.images, self.view, self.at_least, self.seed = images, view, at_least, seed

    def __getitem__(self, row: int) -> tuple[int, Tensor | str]:
        try:
            image = self.images.decode(row, self.at_least)
        except UnreadableImageError as error:
            return row, str(error)
        return row, self.view(image) if self.seed is None else seen(self.view, image, mixed(self.seed, row))


def _loader(dataset: TorchDataset[Any], groups: Any, join: Callable[[list[Any]], Any], workers: int) -> Any:
    # Forked workers inherit the transforms and the patched torchvision; spawned ones would import them again.
    fork = workers and "fork" in multiprocessing.get_all_start_methods()
    return DataLoader(
        dataset,
        batch_sampler=groups,
        collate_fn=join,
        num_workers=workers,
        prefetch_factor=2 if workers else None,
        multiprocessing_context="fork" if fork else None,
        worker_init_fn=_quiet_worker,
        generator=torch.Generator(),  # else it would advance the global generator
    )


def _watched(loader: Iterable[Any]) -> Iterator[Any]:
    """Iterate over a loader; a dead worker (usually out of memory) becomes a UserError."""
    try:
        yield from loader
    except RuntimeError as error:
        if "DataLoader worker (pid" not in str(error):  # but an error within it
            raise
        reason = str(error).splitlines()[0]
        raise UserError(f"A worker process died while decoding images: {reason} Try --workers 0.") from error


def _quiet_worker(number: int) -> None:
    """Let the main process alone handle Ctrl-C, which the terminal sends to every process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
