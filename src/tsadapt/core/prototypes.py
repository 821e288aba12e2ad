"""Class prototypes: means of a batch's features by class, kept over batches, compared between the domains.

Shapes: B_s source samples, B_t target samples, K features, C classes, P classes that both batches have.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.checks import check_matrix, check_vector
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = [
    "class_prototypes",
    "orthogonality_penalty",
    "prototype_discrepancy",
    "prototype_distance",
    "running_prototypes",
    "score_discrepancy",
]


def prototype_distance(
    source: Tensor,
    labels: Tensor,
    target: Tensor,
    guesses: Tensor,
    shift: Tensor | None = None,
    variance: Tensor | None = None,
    strength: float = 1.0,
) -> Tensor:
    """E ‖f̃_i − m^y‖², the mean distance of copies f̃_i ~ N(f_i + λΔμ^y, λΣ^y) to the batch's target mean of class y.

        mean_i (‖f_i + λΔμ^y − m^y‖² + λ tr Σ^y),    m^y = mean of the target samples guessed as y = y_i

    over the source samples whose class has target samples in the batch; 0 if there is none. It is T²SA's prototype
    constraint.

    Shapes: `source` f (B_s, K), `labels` y (B_s,), `target` (B_t, K), `guesses` (B_t,), `shift` Δμ (C, K) and
    `variance` tr Σ (C,), constants, None for zero; λ is `strength`. The gradient reaches both features. In float32 or
    wider.

    >>> import torch
    >>> f, m = torch.tensor([[1.0], [5.0]]), torch.tensor([[2.0], [4.0]])
    >>> prototype_distance(f, torch.tensor([0, 1]), m, torch.tensor([0, 0])).item()  # (1 − 3)²; class 1 has no target
    4.0
    """
    check_matrix("source", source, None, target.shape[-1], "samples by features")
    check_matrix("target", target, None, source.shape[-1], "samples by features")
    check_vector("labels", labels, source.shape[0])
    check_vector("guesses", guesses, target.shape[0])
    with full_precision(source):
        f, t = (x.to(computing_dtype(source, target)) for x in (source, target))
        met, place = torch.unique(guesses, return_inverse=True)
        total = t.new_zeros(met.shape[0], t.shape[1]).index_add(0, place, t)
        mean = total / torch.bincount(place, minlength=met.shape[0])[:, None].to(t)
        same = labels[:, None] == met  # (B_s, P)
        there = same.any(1).to(f)
        moved = f if shift is None else f + strength * shift.detach().to(f).index_select(0, labels)
        each = (moved - same.to(f) @ mean).square().sum(1)
        if variance is not None:
            each = each + strength * variance.detach().to(f).index_select(0, labels)
        mean_distance: Tensor = (there * each).sum() / there.sum().clamp_min(1)
        return mean_distance


def class_prototypes(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """μ (C, K), the mean feature of each class in a batch, zero where there is none, and how many there are (C,).

    Shapes: `features` (B, K), `labels` (B,). The gradient reaches the features. In float32 or wider.

    >>> import torch
    >>> class_prototypes(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 2]), 3)
    (tensor([[2.],
            [0.],
            [5.]]), tensor([2, 0, 1]))
    """
    check_vector("labels", labels, features.shape[0])
    with full_precision(features):
        f = features.to(computing_dtype(features))
        count = torch.bincount(labels, minlength=classes)
        total = f.new_zeros(classes, f.shape[1]).index_add(0, labels, f)
        return total / count.clamp_min(1)[:, None].to(f), count


def running_prototypes(kept: Tensor, met: Tensor, batch: Tensor, count: Tensor, rate: float) -> Tensor:
    """(1 − ρ) μ_kept + ρ μ_batch for the classes of a batch, μ_batch for one that was never met, else μ_kept: (C, K).

    The gradient reaches the batch's part. Shapes: `kept` and `batch` (C, K), `met` (C,) of bool, `count` (C,); ρ is
    `rate`.

    >>> import torch
    >>> kept, batch = torch.tensor([[0.0], [0.0], [4.0]]), torch.tensor([[2.0], [2.0], [0.0]])
    >>> running_prototypes(kept, torch.tensor([True, False, True]), batch, torch.tensor([1, 1, 0]), 0.5).tolist()
    [[1.0], [2.0], [4.0]]
    """
    share = torch.where(met, rate, 1.0) * (count > 0)
    kept = kept.to(batch)
    return kept + share[:, None].to(batch) * (batch - kept)


def prototype_discrepancy(source: Tensor, labels: Tensor, target: Tensor, guesses: Tensor) -> Tensor:
    """mean_c (‖μ_s^c − μ_t^c‖² + ‖μ_s^c − μ_st^c‖² + ‖μ_t^c − μ_st^c‖²), over the classes that both batches have.

    μ_s, μ_t and μ_st are the class means of the source, of the target by its guesses, and of both together: TPN's
    discrepancy of classes. Zero, with a gradient of zero, if no class is in both.

    Shapes: `source` (B_s, K), `labels` (B_s,), `target` (B_t, K), `guesses` (B_t,).

    >>> import torch
    >>> s, t = torch.tensor([[0.0], [9.0]]), torch.tensor([[4.0], [4.0], [4.0]])
    >>> y, guess = torch.tensor([0, 1]), torch.tensor([0, 0, 2])
    >>> round(prototype_discrepancy(s, y, t, guess).item(), 4)  # 4² + (8/3)² + (4/3)²
    24.8889
    """
    with full_precision(source):
        mu_s, mu_t, mu_st = _three(source, labels, target, guesses)[1]
        pairs = ((mu_s, mu_t), (mu_s, mu_st), (mu_t, mu_st))
        each = torch.stack([(a - b).square().sum(1) for a, b in pairs]).sum(0)
        return each.sum() / max(len(each), 1)


def score_discrepancy(source: Tensor, labels: Tensor, target: Tensor, guesses: Tensor) -> Tensor:
    """How differently the three kinds of prototypes classify the rows of both batches: TPN's discrepancy of samples.

        P_•(f)^c = softmax_c(−‖f − μ_•^c‖²),   mean_f ⅓ Σ_{pairs of s, t, st} ½ (KL(P_a ‖ P_b) + KL(P_b ‖ P_a))

    over the classes that both batches have; zero, with a gradient of zero, if that is not more than one. Prototypes and
    shapes are those of `prototype_discrepancy`.

    >>> import torch
    >>> f, y = torch.randn(6, 2), torch.tensor([0, 0, 1, 1, 2, 2])
    >>> round(score_discrepancy(f, y, f, y).item(), 6)
    0.0
    """
    with full_precision(source):
        f, prototypes = _three(source, labels, target, guesses)
        # ‖f‖² is the same for all classes.
        log_p = [F.log_softmax(2 * f @ mu.T - mu.square().sum(1), dim=1) for mu in prototypes]
        pairs = ((log_p[0], log_p[1]), (log_p[0], log_p[2]), (log_p[1], log_p[2]))
        # ½ (KL(P ‖ Q) + KL(Q ‖ P)) = ½ Σ (p − q)(log p − log q)
        each = torch.stack([0.5 * ((a.exp() - b.exp()) * (a - b)).sum(1) for a, b in pairs])
        return each.mean()


def _three(source: Tensor, labels: Tensor, target: Tensor, guesses: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The rows of both batches (B_s + B_t, K), and μ_s, μ_t and μ_st of the classes that both have (P, K)."""
    check_matrix("source", source, None, target.shape[-1], "samples by features")
    check_vector("labels", labels, source.shape[0])
    check_vector("guesses", guesses, target.shape[0])
    dtype = computing_dtype(source, target)
    s, t = source.to(dtype), target.to(dtype)
    classes = 1 + int(max(labels.max(), guesses.max()))
    rows = torch.cat([s, t])
    parts = ((s, labels), (t, guesses), (rows, torch.cat([labels, guesses])))
    (mu_s, n_s), (mu_t, n_t), (mu_st, _) = (class_prototypes(f, y, classes) for f, y in parts)
    both = (n_s > 0) & (n_t > 0)
    return rows, (mu_s[both], mu_t[both], mu_st[both])


def orthogonality_penalty(prototypes: Tensor) -> Tensor:
    """‖μμᵀ − I‖_F²/P: how far P prototypes (P, K) are from length one and right angles, a prototype.

    >>> import torch
    >>> orthogonality_penalty(torch.eye(3)).item(), orthogonality_penalty(torch.ones(2, 1)).item()
    (0.0, 1.0)
    """
    with full_precision(prototypes):
        mu = prototypes.to(computing_dtype(prototypes))
        identity = torch.eye(len(mu), dtype=mu.dtype, device=mu.device)
        return (mu @ mu.T - identity).square().sum() / max(len(mu), 1)
