"""Adaptive batch normalisation: the statistics of another domain in a trained network (Li et al., 2016: AdaBN)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tsadapt.models.stages import Stem

__all__ = ["batch_statistics", "normalisations", "normalise_by", "statistics_batches", "still_averages"]

SMALL = 0.1
"""A last batch of less than this part of the others is too small for statistics that count as much as theirs."""


def normalisations(network: nn.Module) -> list[nn.Module]:
    """The batch normalisations of a network, those of frozen layers aside."""
    frozen = {id(m) for stem in network.modules() if isinstance(stem, Stem) for m in stem.modules()}
    every = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    return [m for m in every if id(m) not in frozen]


def statistics_batches(rows: int, size: int) -> list[range]:
    """Rows in batches of `size`; a small remainder goes into the batch before it.

    >>> statistics_batches(1025, 512)
    [range(0, 512), range(512, 1025)]
    """
    starts = [*range(0, rows, size)]
    if len(starts) > 1 and rows - starts[-1] < SMALL * size:
        starts.pop()
    return [range(start, end) for start, end in zip(starts, [*starts[1:], rows], strict=True)]


@contextmanager
def batch_statistics(network: nn.Module) -> Iterator[None]:
    """Dropout off, batch normalisation by the batch; its running averages are put back at the end."""
    network.eval()
    found = normalisations(network)
    before = [{k: v.clone() for k, v in m.state_dict().items()} for m in found]
    for m in found:
        m.train()
    try:
        yield
    finally:
        for m, state in zip(found, before, strict=True):
            m.load_state_dict(state)


@contextmanager
def still_averages(network: nn.Module) -> Iterator[None]:
    """Batch normalisation by the batch where it is in training, without a trace in its running averages.

    >>> layer = nn.BatchNorm1d(2)
    >>> with still_averages(layer):
    ...     _ = layer(5 + torch.randn(8, 2))
    >>> layer.running_mean.tolist(), int(layer.num_batches_tracked)
    ([0.0, 0.0], 0)
    """
    found = [m for m in normalisations(network) if m.training and m.track_running_stats]
    for m in found:
        m.track_running_stats = False  # type: ignore[assignment]
    try:
        yield
    finally:
        for m in found:
            m.track_running_stats = True  # type: ignore[assignment]


@torch.no_grad()
def normalise_by(network: nn.Module, one_pass: Callable[[], object]) -> None:
    """Replace the running averages of batch normalisation by the averages over the batches of one pass over a domain.

    `one_pass` sends every batch of the domain through the network, which is in evaluation mode but for batch
    normalisation: each layer takes the statistics of its batch, as in training.

    >>> network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    >>> x = 5 + torch.randn(64, 2)
    >>> normalise_by(network, lambda: network(x))
    >>> bool(network(x).mean().abs() < 1e-5), network.training
    (True, False)
    """
    network.eval()
    found = [m for m in normalisations(network) if isinstance(getattr(m, "running_mean", None), Tensor)]
    momentum = [m.momentum for m in found]
    for m in found:
        m.reset_running_stats()  # type: ignore[operator]
        m.momentum = None  # type: ignore[assignment]  # the plain average of all batches
        m.train()
    try:
        one_pass()
    finally:
        for m, before in zip(found, momentum, strict=True):
            m.momentum = before
            m.eval()
