"""Subsets of a domain: rows held out for validation, or a share of the rows for training."""

import torch

from tsadapt.data.loader import seeded
from tsadapt.data.types import Domain
from tsadapt.errors import UserError

__all__ = ["draw_share", "hold_out"]


def hold_out(domain: Domain, share: float, seed: int) -> tuple[Domain, Domain]:
    """Split off `share` of the rows of each class: the rest, and the rows held out.

    A class with two or more rows gives at least one and keeps at least one; a class with one row keeps it.

    >>> domain = Domain("pets", torch.zeros(6, 2), torch.tensor([0, 0, 0, 0, 1, 1]), ("cat", "dog"))
    >>> train, held = hold_out(domain, 0.25, seed=0)
    >>> train.y.tolist(), held.y.tolist()
    ([0, 0, 0, 1], [0, 1])
    """
    if domain.y is None:
        raise ValueError("only a labelled domain can be split by class")
    held = []
    generator = seeded(seed, 8)
    for label in range(len(domain.classes or ())):
        rows = (domain.y == label).nonzero()[:, 0]
        if len(rows) > 1:
            count = min(max(round(share * len(rows)), 1), len(rows) - 1)
            held += rows[torch.randperm(len(rows), generator=generator)[:count]].tolist()
    if not held:
        raise UserError(f"{domain.name} has one row per class, so no row can be held out. Use --holdout 0.")
    apart = set(held)
    return domain.keep([row for row in range(len(domain)) if row not in apart]), domain.keep(sorted(held))


def draw_share(domain: Domain, share: float, seed: int, by_class: bool) -> Domain:
    """A random share of all rows (at least two), or of each class, which uses the labels.

    >>> domain = Domain("pets", torch.zeros(8, 2), torch.tensor([0, 0, 0, 0, 0, 0, 1, 1]), ("cat", "dog"))
    >>> draw_share(domain, 0.5, seed=0, by_class=True).y.tolist(), len(draw_share(domain, 0.5, 0, by_class=False))
    ([0, 0, 0, 1], 4)
    """
    generator = seeded(seed, 9)

    def drawn(rows: torch.Tensor, least: int) -> list[int]:
        found: list[int] = rows[torch.randperm(len(rows), generator=generator)].tolist()
        return found[: max(round(share * len(rows)), least)]

    if not by_class:
        return domain.keep(sorted(drawn(torch.arange(len(domain)), 2)))
    if domain.y is None:
        raise UserError(
            f"{domain.name} has no labels, which --target-draw oracle-stratified needs. Use --target-draw uniform."
        )
    return domain.keep(
        sorted(
            row for label in torch.unique(domain.y).tolist() for row in drawn((domain.y == label).nonzero()[:, 0], 1)
        )
    )
