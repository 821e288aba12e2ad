"""Two batches as graphs of similar rows, matched by Gromov–Wasserstein transport, and rows translated along it.

Shapes: B_s and B_t samples, K features.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.checks import check_matrix
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = ["graph_coupling", "similarity_graph", "translation"]


def similarity_graph(features: Tensor) -> tuple[Tensor, Tensor]:
    """A_ij = max(cos(f_i, f_j), 0), and p_i ∝ Σ_j A_ij: which rows are alike, and how many are like each (GSP).

    A row is like itself, so no degree is zero.

    Shapes: `features` (B, K), A (B, B), p (B,), which sums to one. In float64.

    >>> import torch
    >>> graph, share = similarity_graph(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]]))
    >>> graph.tolist(), share.tolist()
    ([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [0.4, 0.4, 0.2])
    """
    check_matrix("features", features, None, features.shape[-1], "samples by features")
    unit = F.normalize(features.double(), dim=1)
    graph = (unit @ unit.T).clamp(0, 1).fill_diagonal_(1)
    degree = graph.sum(1)
    return graph, degree / degree.sum()


def graph_coupling(features_s: Tensor, features_t: Tensor) -> Tensor:
    """T (B_s, B_t) ≥ 0 with marginals p_s and p_t that matches like rows, and pairs of rows that are as alike.

        min_T ½ Σ_ij T_ij (1 − cos(f_i, f_j)) + ½ Σ_ijkl (A^s_ik − A^t_jl)² T_ij T_kl

    A and p are those of `similarity_graph`. POT solves it (fused Gromov–Wasserstein), on the CPU, from p_s p_tᵀ on; the
    same features give the same T. No gradient passes through.

    Shapes: `features_s` (B_s, K), `features_t` (B_t, K).
    """
    from ot.gromov import fused_gromov_wasserstein  # an extra, and slow to import

    check_matrix("features_t", features_t, None, features_s.shape[1], f"features_s has {features_s.shape[1]} features")
    f_s, f_t = features_s.detach().cpu(), features_t.detach().cpu()
    (graph_s, p_s), (graph_t, p_t) = similarity_graph(f_s), similarity_graph(f_t)
    apart = 1 - F.normalize(f_s.double(), dim=1) @ F.normalize(f_t.double(), dim=1).T
    given = (x.numpy() for x in (apart, graph_s, graph_t, p_s, p_t))
    found = fused_gromov_wasserstein(*given, loss_fun="square_loss", alpha=0.5, max_iter=100)
    return torch.as_tensor(found).clamp_min(0).to(features_s.device)


def translation(coupling: Tensor, same_class: Tensor, features_t: Tensor) -> tuple[Tensor, Tensor]:
    """Target features in the place of the source's: T̂ f_t, T̂ the coupling within each class, its rows of sum one.

    Also which rows have a match; the others are zero.

    Shapes: `coupling` and `same_class` (B_s, B_t), `features_t` (B_t, K); result (B_s, K) and (B_s,).

    >>> import torch
    >>> t = torch.tensor([[0.3, 0.1, 0.1], [0.2, 0.1, 0.2]])
    >>> same = torch.tensor([[True, True, False], [False, False, False]])
    >>> copy, matched = translation(t, same, torch.tensor([[4.0], [8.0], [0.0]]))
    >>> [round(v, 4) for v in copy.flatten().tolist()], matched.tolist()
    ([5.0, 0.0], [True, False])
    """
    check_matrix("coupling", coupling, None, len(features_t), "a column for each of features_t")
    if same_class.shape != coupling.shape:
        raise ValueError(f"same_class has shape {tuple(same_class.shape)}, expected {tuple(coupling.shape)}.")
    with full_precision(features_t):
        kept = coupling * same_class
        total = kept.sum(1)
        matched = total > 0
        rows = kept / torch.where(matched, total, 1.0)[:, None]
        dtype = computing_dtype(features_t)
        return rows.to(dtype) @ features_t.to(dtype), matched
