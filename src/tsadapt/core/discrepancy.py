"""How far apart two batches are, by the means of a kernel (MMD) or by their covariances (CORAL).

Shapes: B_s and B_t samples, K features, C classes. Computed in float32 or wider.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.adversarial import multilinear_map
from tsadapt.core.checks import check_matrix
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = ["MMDEstimator", "covariance_distance", "fused_features", "joint_mmd", "multi_kernel_mmd"]

MMDEstimator = Literal["unbiased", "linear"]

WIDTHS = (0.125, 0.25, 0.5, 1.0, 2.0)
"""σ²_k of the five Gaussian kernels, as shares of the mean squared distance: 2^k, k = −3…1."""


def multi_kernel_mmd(
    features_s: Tensor, features_t: Tensor, estimator: MMDEstimator = "unbiased", spread: float | None = None
) -> Tensor:
    """MMD², the squared distance between the kernel means of two batches (DAN; Long et al., 2015).

        k(x, y) = Σ_{k=−3…1} exp(−‖x − y‖²/(2σ²_k)),   σ²_k = 2^k · spread

    `spread` is the mean of ‖x − y‖² over all (B_s + B_t)² pairs of both batches, as a constant, unless it is given. So
    a common scale or shift of all features changes nothing.

    With `estimator="unbiased"` all pairs of different rows count:

        MMD² = mean_{i≠j} k(s_i, s_j) + mean_{i≠j} k(t_i, t_j) − 2 mean_{i,j} k(s_i, t_j)

    With "linear" only neighbours do, at a cost linear in B = B_s = B_t, with i + 1 = 1 for i = B:

        MMD² = 1/B Σ_i [k(s_i, s_{i+1}) + k(t_i, t_{i+1}) − k(s_i, t_{i+1}) − k(s_{i+1}, t_i)]

    Both are 0 on average for equal distributions, and below it half of the time: no constant is added to hide that.
    Shapes: `features_s` (B_s, K), `features_t` (B_t, K), two rows or more each.

    >>> import torch
    >>> s, t = torch.tensor([[0.0], [0.0]]), torch.tensor([[1.0], [1.0]])
    >>> value = multi_kernel_mmd(s, t)  # the mean of ‖x − y‖² is ½: 2 Σ_k [1 − exp(−2^−k)]
    >>> bool(value.isclose(2 * sum(1 - torch.tensor(-(2.0**-k)).exp() for k in range(-3, 2))))
    True
    """
    _check_batches("features", features_s, features_t, estimator)
    with full_precision(features_s):
        return _estimate(_feature_kernel(features_s, features_t, estimator, spread), len(features_s), estimator)


def joint_mmd(
    features_s: Tensor,
    features_t: Tensor,
    probabilities_s: Tensor,
    probabilities_t: Tensor,
    sigma: float = 0.92,
    estimator: MMDEstimator = "unbiased",
    spread: float | None = None,
) -> Tensor:
    """MMD² of features and predictions together, by the product of their kernels (JAN; Long et al., 2017).

        k((x, p), (y, q)) = k_f(x, y) · exp(−‖p − q‖²/(2σ²)),   k_f the five kernels of `multi_kernel_mmd`

    σ = 0.92 is a standard deviation, in the units of probabilities: 2σ² = 1.69, not 2σ.

    Shapes: `features_s` (B_s, K), `features_t` (B_t, K), `probabilities_s` (B_s, C), `probabilities_t` (B_t, C).
    Estimators and `spread` are those of `multi_kernel_mmd`.

    >>> import torch
    >>> s, t, same = torch.randn(4, 3), torch.randn(5, 3), torch.full((5, 2), 0.5)
    >>> bool(joint_mmd(s, t, same[:4], same).isclose(multi_kernel_mmd(s, t), atol=1e-6))  # predictions all alike
    True
    """
    _check_batches("features", features_s, features_t, estimator)
    _check_batches("probabilities", probabilities_s, probabilities_t, estimator)
    check_matrix("probabilities_s", probabilities_s, len(features_s), probabilities_s.shape[1], "one row a feature")
    check_matrix("probabilities_t", probabilities_t, len(features_t), probabilities_t.shape[1], "one row a feature")
    with full_precision(features_s):
        dtype = computing_dtype(features_s, features_t, probabilities_s, probabilities_t)
        k_f = _feature_kernel(features_s, features_t, estimator, spread)
        p_s, p_t = probabilities_s.to(dtype), probabilities_t.to(dtype)
        k_p = torch.exp(-_squared_distances(p_s, p_t, estimator) / (2 * sigma**2))
        return _estimate(k_f * k_p, len(features_s), estimator)


def fused_features(features: Tensor, logits: Tensor) -> Tensor:
    """The products f ⊗ z, those of each class averaged in pairs of neighbours, so that half of them are left (RTN).

    Shapes: `features` (B, K), `logits` (B, C), result (B, C·⌈K/2⌉), one block of ⌈K/2⌉ values a class; the last feature
    of an odd number stays by itself. In float32 or wider.

    >>> import torch
    >>> fused_features(torch.tensor([[1.0, 3.0, 5.0]]), torch.tensor([[1.0, -2.0]])).tolist()
    [[2.0, 5.0, -4.0, -10.0]]
    """
    check_matrix("features", features, None, features.shape[-1], "samples by features")
    check_matrix("logits", logits, len(features), logits.shape[-1], "one row a feature")
    with full_precision(features):
        dtype = computing_dtype(features, logits)
        halved = F.avg_pool1d(features.to(dtype)[None], 2, ceil_mode=True)[0]
        return multilinear_map(halved, logits.to(dtype))


def covariance_distance(features_s: Tensor, features_t: Tensor) -> Tensor:
    """‖C_s − C_t‖_F²/(4K²), C the covariances of two batches, Σ (f − f̄)(f − f̄)ᵀ/(B − 1) (Sun & Saenko, 2016).

    A common rotation or separate shifts of the batches change nothing. It grows with the fourth power of the features'
    scale, and is finite in float32 for features up to 1e9.

    Shapes: `features_s` (B_s, K), `features_t` (B_t, K), two rows or more each.

    >>> import torch
    >>> s, t = torch.tensor([[0.0], [2.0]]), torch.tensor([[5.0], [5.0]])
    >>> covariance_distance(s, t).item()  # variances 2 and 0
    1.0
    """
    _check_batches("features", features_s, features_t, "unbiased")
    with full_precision(features_s):
        dtype = computing_dtype(features_s, features_t)
        difference = _covariance(features_s.to(dtype)) - _covariance(features_t.to(dtype))
        return difference.square().sum() / (4 * features_s.shape[1] ** 2)


def _covariance(f: Tensor) -> Tensor:
    centred = f - f.mean(0)
    return centred.T @ centred / (len(f) - 1)


def _check_batches(name: str, s: Tensor, t: Tensor, estimator: MMDEstimator) -> None:
    check_matrix(f"{name}_s", s, None, s.shape[-1], "samples by values")
    check_matrix(f"{name}_t", t, None, s.shape[-1], f"{name}_s has {s.shape[-1]} columns")
    for which, rows in (("s", len(s)), ("t", len(t))):
        if rows < 2:
            raise ValueError(f"{name}_{which} has {rows} row(s), expected at least 2.")
    if estimator not in ("unbiased", "linear"):
        raise ValueError(f"estimator is {estimator!r}, expected 'unbiased' or 'linear'.")
    if estimator == "linear" and len(s) != len(t):
        raise ValueError(
            f"{name}_s has {len(s)} rows and {name}_t {len(t)}: the linear estimator needs batches of one size."
            " Take 'unbiased', or equal batches."
        )


def _feature_kernel(s: Tensor, t: Tensor, estimator: MMDEstimator, spread: float | None) -> Tensor:
    """Σ_k exp(−‖x − y‖²/(2σ²_k)) of the pairs that an estimator needs."""
    dtype = computing_dtype(s, t)
    s, t = s.to(dtype), t.to(dtype)
    with torch.no_grad():
        both = torch.cat([s, t])
        # In units of the largest entry no square overflows; the kernels do not depend on the unit.
        unit = both.abs().amax().clamp_min(torch.finfo(dtype).tiny)
        both = both / unit
        # Over all pairs, i = j among them: mean ‖x_i − x_j‖² = 2 mean ‖x_i − x̄‖².
        mean = 2 * (both - both.mean(0)).square().sum(1).mean() if spread is None else spread / unit / unit
        mean = mean.clamp_min(1e-30)  # rows that are all alike: their distances are exactly 0
    squared = _squared_distances(s / unit, t / unit, estimator)
    return torch.stack([torch.exp(-squared / (2 * width * mean)) for width in WIDTHS]).sum(0)


def _squared_distances(s: Tensor, t: Tensor, estimator: MMDEstimator) -> Tensor:
    """‖x − y‖² of all pairs, (B_s + B_t, B_s + B_t), or of the four kinds of neighbours, (4, B)."""
    if estimator == "linear":
        s_next, t_next = s.roll(-1, 0), t.roll(-1, 0)
        return torch.stack([s - s_next, t - t_next, s - t_next, s_next - t]).square().sum(2)
    # From inner products, eight times faster than from differences where rows are long (RTN's are). Around the mean of
    # all rows, so that rounding stays small beside the mean distance, wherever the rows lie.
    both = torch.cat([s, t])
    both = both - both.detach().mean(0)
    gram = both @ both.T
    square = gram.diagonal()
    return (square[:, None] + square - 2 * gram).clamp_min(0)


def _estimate(kernel: Tensor, b_s: int, estimator: MMDEstimator) -> Tensor:
    """MMD² of the kernel's values at those pairs."""
    if estimator == "linear":
        return (kernel[0] + kernel[1] - kernel[2] - kernel[3]).mean()
    ss, tt, st = kernel[:b_s, :b_s], kernel[b_s:, b_s:], kernel[:b_s, b_s:]
    return _mean_off_diagonal(ss) + _mean_off_diagonal(tt) - 2 * st.mean()


def _mean_off_diagonal(kernel: Tensor) -> Tensor:
    n = len(kernel)
    return (kernel.sum() - kernel.diagonal().sum()) / (n * (n - 1))
