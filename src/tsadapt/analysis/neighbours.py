"""What augmented features are like, without any generator: the real images whose features lie nearest.

Shapes: Q queries and N rows of K features; M neighbours.
"""

import torch
from torch import Tensor

__all__ = ["nearest"]

QUERIES_AT_ONCE = 256


def nearest(queries: Tensor, rows: Tensor, count: int, exclude: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The `count` rows (N, K) nearest to each of the queries (Q, K): their numbers and distances, (Q, M).

    `exclude` (Q,) names a row for each query that does not count, such as the image it came from.

    >>> rows = torch.tensor([[0.0], [1.0], [5.0]])
    >>> nearest(torch.tensor([[0.9]]), rows, 2)[0].tolist()
    [[1, 0]]
    >>> nearest(torch.tensor([[0.9]]), rows, 2, exclude=torch.tensor([1]))[0].tolist()
    [[0, 2]]
    """
    count = min(count, len(rows) - (exclude is not None))
    indices, distances = [], []
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        some = slice(start, start + QUERIES_AT_ONCE)
        distance = torch.cdist(queries[some], rows)
        if exclude is not None:
            distance.scatter_(1, exclude[some][:, None], torch.inf)
        least = distance.topk(count, dim=1, largest=False)
        indices.append(least.indices)
        distances.append(least.values)
    return torch.cat(indices), torch.cat(distances)
