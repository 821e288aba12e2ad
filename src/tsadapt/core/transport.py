"""How much it costs to carry the source's features to the target's: entropic optimal transport, by its dual.

Shapes: B_s and B_t samples, K features, C classes.
"""

import math

import torch
from torch import Tensor

from tsadapt.core.checks import check_matrix
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = ["attended_cost", "entropic_dual"]


def attended_cost(features_s: Tensor, features_t: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """C_ij = σ(q_i·k_j) ‖f_i − f_j‖: the distance of each source row from each target row, weighted by attention (ETD).

    The distance is not squared. Equal rows have a cost of zero, and no gradient.

    Shapes: `features_s` (B_s, K), `features_t` (B_t, K), `query` (B_s, D), `key` (B_t, D), result (B_s, B_t).

    >>> import torch
    >>> f_s, f_t = torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    >>> attended_cost(f_s, f_t, torch.zeros(1, 2), torch.zeros(2, 2))
    tensor([[2.5000, 0.0000]])
    """
    b_s, b_t = len(features_s), len(features_t)
    check_matrix("features_s", features_s, None, features_s.shape[-1], "samples by features")
    check_matrix("features_t", features_t, None, features_s.shape[1], f"features_s has {features_s.shape[1]} features")
    check_matrix("query", query, b_s, query.shape[-1], "a row for each of features_s")
    check_matrix("key", key, b_t, query.shape[1], "a row for each of features_t, as wide as query")
    with full_precision(features_s):
        dtype = computing_dtype(features_s, features_t, query, key)
        f_s, f_t = features_s.to(dtype), features_t.to(dtype)
        # Without the product of the two, which would lose the digits of small distances.
        distance = torch.cdist(f_s, f_t, compute_mode="donot_use_mm_for_euclid_dist")
        return torch.sigmoid(query.to(dtype) @ key.to(dtype).T) * distance


def entropic_dual(u: Tensor, v: Tensor, cost: Tensor, epsilon: float = 1.0) -> Tensor:
    """W = mean u + mean v − ε log mean_ij exp((u_i + v_j − C_ij)/ε), whose largest value is the cost of transport.

    For any potentials u and v it is at most min_P Σ_ij P_ij C_ij + ε KL(P ‖ 1/(B_s B_t)), over all P with even
    marginals, and it gets there at the best ones. Its gradient at C is then P. The published form has
    −ε mean_ij exp(…) in place of −ε log mean_ij exp(…), and the same maximum less ε; its gradient grows without bound.

    Shapes: `u` (B_s,), `v` (B_t,), `cost` (B_s, B_t).

    >>> import torch
    >>> cost = torch.tensor([[1.0, 3.0]])
    >>> round(entropic_dual(torch.tensor([5.0]), torch.tensor([1.0, 3.0]), cost).item(), 4)  # one source row: the mean
    2.0
    """
    if u.ndim != 1 or v.ndim != 1:
        raise ValueError(f"u and v have shapes {tuple(u.shape)} and {tuple(v.shape)}, expected a vector each.")
    check_matrix("cost", cost, len(u), len(v), "a row for each of u, a column for each of v")
    if epsilon <= 0:
        raise ValueError(f"epsilon is {epsilon}, expected more than zero.")
    with full_precision(cost):
        dtype = computing_dtype(u, v, cost)
        u, v = u.to(dtype), v.to(dtype)
        slack = (u[:, None] + v - cost.to(dtype)) / epsilon
        return u.mean() + v.mean() - epsilon * (slack.flatten().logsumexp(0) - math.log(slack.numel()))
