"""Feature norms that grow.

Shapes: B samples, K features.
"""

import torch
from torch import Tensor

from tsadapt.core.checks import check_matrix
from tsadapt.core.precision import computing_dtype, full_precision

__all__ = ["norm_growth_loss"]


def norm_growth_loss(features: Tensor, step: float = 1.0) -> Tensor:
    """Pull every feature's norm a step beyond what it is now (stepwise adaptive feature norm; Xu et al., 2019).

        L = 1/B Σ_i (‖f_i‖ − (r_i + Δr))²,   r_i = ‖f_i‖ as a constant

    Its value is always Δr²; what counts is its gradient, −2Δr/B · f_i/‖f_i‖. A feature of zeros has no direction to
    grow in, and no gradient. In float32 or wider, whatever the size of the features.

    Shape: `features` (B, K).

    >>> import torch
    >>> f = torch.tensor([[3.0, 4.0]], requires_grad=True)
    >>> loss = norm_growth_loss(f, step=0.5)
    >>> loss.backward()
    >>> loss.item(), f.grad
    (0.25, tensor([[-0.6000, -0.8000]]))
    """
    if features.ndim != 2 or len(features) == 0:
        raise ValueError(f"features has shape {tuple(features.shape)}, expected (samples, features), at least one row.")
    check_matrix("features", features, None, features.shape[1], "samples by features")
    with full_precision(features):
        f = features.to(computing_dtype(features))
        constant = f.detach()
        # f/‖f‖, without squares that overflow or vanish
        unit = constant / constant.abs().amax(1, keepdim=True).clamp_min(torch.finfo(f.dtype).tiny)
        unit = unit / torch.linalg.vector_norm(unit, dim=1, keepdim=True).clamp_min(1)
        growth = ((f - constant) * unit).sum(1)  # ‖f‖ − r: 0, with the gradient f/‖f‖; r + Δr would lose Δr beside r
        loss: Tensor = (growth - step).square().mean()
        return loss
