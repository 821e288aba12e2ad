"""How far apart the predictions of two classifiers are.

Shapes: B samples, C classes, D directions.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.precision import computing_dtype, full_precision

__all__ = ["random_directions", "sliced_wasserstein"]


def random_directions(classes: int, count: int, generator: torch.Generator) -> Tensor:
    """Unit vectors (C, D), evenly distributed over all directions.

    >>> d = random_directions(5, 3, torch.Generator().manual_seed(0))
    >>> d.shape, bool(torch.allclose(d.norm(dim=0), torch.ones(3)))
    (torch.Size([5, 3]), True)
    """
    return F.normalize(torch.randn(classes, count, generator=generator), dim=0)


def sliced_wasserstein(p: Tensor, q: Tensor, directions: Tensor) -> Tensor:
    """The squared Wasserstein distance of two sets of predictions, averaged over one-dimensional projections (SWD).

        mean_{i,d} (sort_i(p θ_d) − sort_i(q θ_d))²

    Shapes: `p` and `q` (B, C), `directions` θ (C, D). The rows are sets: which row stands where does not count.

    >>> p = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> sliced_wasserstein(p, p.flip(0), torch.eye(2)).item()  # the same set
    0.0
    >>> sliced_wasserstein(p, torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.eye(2)).item()  # half of the rows are 1 off
    0.5
    """
    if p.shape != q.shape or p.ndim != 2 or directions.ndim != 2 or len(directions) != p.shape[1]:
        shapes = [tuple(t.shape) for t in (p, q, directions)]
        raise ValueError(f"p, q and directions have shapes {shapes}, expected (B, C), (B, C) and (C, D).")
    with full_precision(p):
        theta = directions.to(device=p.device, dtype=computing_dtype(p))
        along_p, along_q = ((x.to(theta.dtype) @ theta).sort(0).values for x in (p, q))
        return (along_p - along_q).square().mean()
