"""What a domain discriminator is trained on. Source is 1, target is 0.

Shapes: B_s and B_t samples, K features, C classes, D features of the randomised map.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["certainty_weights", "domain_loss", "inverted_domain_loss", "multilinear_map", "randomized_map"]


def domain_loss(
    logits_s: Tensor,
    logits_t: Tensor,
    weight_s: Tensor | None = None,
    weight_t: Tensor | None = None,
    *,
    smoothing: float = 0.0,
) -> Tensor:
    """L_d = ½ Σ_i ŵ_i (−log D(x_i^s)) + ½ Σ_j ŵ_j (−log(1 − D(x_j^t))), D = σ(logits), ŵ summing to one in each domain.

    Shapes: `logits_s` and `weight_s` (B_s,), `logits_t` and `weight_t` (B_t,). Without weights all rows of a domain
    count alike. Denominators are constants.

    With `smoothing` s the domains are labelled 1 − s and s instead of 1 and 0: −(1 − s) log D(x^s) − s log(1 − D(x^s)),
    and the other way round on the target (environment label smoothing; Zhang et al., 2023). It is least at D = 1 − s
    and D = s, so logits need not grow without end.

    >>> import torch
    >>> round(domain_loss(torch.zeros(3), torch.zeros(5)).item(), 6)  # D = ½: log 2
    0.693147
    """
    loss_s, loss_t = F.softplus(-logits_s), F.softplus(logits_t)  # −log σ(d), −log(1 − σ(d))
    if smoothing:  # −log(1 − σ(d)) = d − log σ(d)
        loss_s, loss_t = loss_s + smoothing * logits_s, loss_t - smoothing * logits_t
    return 0.5 * (_weighted_mean(loss_s, weight_s) + _weighted_mean(loss_t, weight_t))


def _weighted_mean(loss: Tensor, weight: Tensor | None) -> Tensor:
    return loss.mean() if weight is None else (loss * weight).sum() / weight.detach().sum()


def inverted_domain_loss(logits_t: Tensor) -> Tensor:
    """L = −mean log D(x_j^t), D = σ(logits): what the target's extractor minimises to pass for the source (ADDA).

    Its gradient is largest where the discriminator is right, (D − 1)/B_t, while that of −log(1 − D) reversed, −D/B_t,
    vanishes there.

    Shape: `logits_t` (B_t,).

    >>> import torch
    >>> round(inverted_domain_loss(torch.zeros(3)).item(), 6)  # D = ½: log 2
    0.693147
    """
    return F.softplus(-logits_t).mean()


def certainty_weights(logits: Tensor, base: float = 1.0) -> Tensor:
    """W = 1 + exp(−H(p)), p = softmax(logits): from just above 1 to 2, the more certain the prediction (CDAN+E).

    With `base` 0 it is exp(−H(p)) alone, from 1/C to 1 (GVB). Shapes: `logits` (B, C), w (B,).

    >>> import torch
    >>> certainty_weights(torch.tensor([[0.0, 0.0], [500.0, 0.0]]))
    tensor([1.5000, 2.0000])
    """
    log_p = F.log_softmax(logits, dim=1)
    entropy = -(log_p.exp() * log_p).sum(1)
    return base + torch.exp(-entropy)


def multilinear_map(features: Tensor, probabilities: Tensor) -> Tensor:
    """T(f, g) = f ⊗ g, flattened with one block of K values a class (CDAN): (B, K), (B, C) → (B, C·K)."""
    return (probabilities[:, :, None] * features[:, None, :]).flatten(1)


def randomized_map(features: Tensor, probabilities: Tensor, r_f: Tensor, r_g: Tensor) -> Tensor:
    """T(f, g) = (f R_f) ⊙ (g R_g)/√D, whose inner products are those of f ⊗ g on average over R ~ N(0, 1) (CDAN).

    Shapes: `r_f` (K, D), `r_g` (C, D), result (B, D).
    """
    out: Tensor = (features @ r_f) * (probabilities @ r_g) / r_f.shape[1] ** 0.5
    return out
