"""Some rows of a domain: kept apart for validators that need labels, or all that training may see."""

import torch

from tsadapt.data.loader import seeded
from tsadapt.data.types import Domain
from tsadapt.errors import UserError

__all__ = ["draw_share", "hold_out"]


def hold_out(domain: Domain, share: float, seed: int) -> tuple[Domain, Domain]:
    """The domain without `share` of the rows of each class, and those rows.

    A class of two rows or more gives at least one and keeps at least one; a class of a single row keeps it.

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
        raise UserError(f"{domain.name} has one row a class: nothing can be held out. Give --holdout 0.")
    apart = set(held)
    return domain.keep([row for row in range(len(domain)) if row not in apart]), domain.keep(sorted(held))


def draw_share(domain: Domain, share: float, seed: int, by_class: bool) -> Domain:
    """`share` of the rows at random: of all, or (by class, which looks at labels) of each class; at least two rows.

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
        raise UserError(f"{domain.name} has no labels, which the draw oracle-stratified looks at: draw it uniformly.")
    return domain.keep(
        sorted(
            row for label in torch.unique(domain.y).tolist() for row in drawn((domain.y == label).nonzero()[:, 0], 1)
        )
    )
