"""Pseudo-labels from class centroids, and the cross-entropy with labels that count unequally.

Shapes: n rows, B samples of a batch, K features, C classes.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.checks import check_logits, check_matrix, check_vector
from tsadapt.core.precision import computing_dtype, full_precision
from tsadapt.core.processes import Processes

__all__ = ["centroid_labels", "nearest_centroid", "product_labels", "pseudo_label_loss"]


@torch.no_grad()
def nearest_centroid(features: Tensor, centroids: Tensor, present: Tensor) -> Tensor:
    """The class of largest cosine between a sample and a centroid, among the classes that have one.

    Shapes: `features` (B, K), `centroids` (C, K), `present` (C,), result (B,). The centroid of a class without rows is
    no direction at all, so it is left out instead of being divided by its length. In float32 or wider.

    >>> import torch
    >>> centroids = torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    >>> nearest_centroid(torch.tensor([[1.0, 3.0]]), centroids, torch.tensor([True, False, True])).tolist()
    [2]
    """
    return _cosines(features, centroids, present).argmax(1)


def _cosines(features: Tensor, centroids: Tensor, present: Tensor) -> Tensor:
    """The cosines of samples and centroids (B, C); −∞ for a class that has none."""
    check_matrix("centroids", centroids, None, features.shape[-1], "classes by features")
    check_matrix("features", features, None, centroids.shape[1], "samples by features")
    if tuple(present.shape) != centroids.shape[:1] or present.dtype != torch.bool:
        raise ValueError(
            f"present is {tuple(present.shape)}, {present.dtype}, expected ({len(centroids)},) of bool: one for each"
            " class."
        )
    with full_precision(features):
        dtype = computing_dtype(features, centroids)
        f, centres = (F.normalize(one.to(features.device, dtype), dim=1) for one in (features, centroids))
        return (f @ centres.T).masked_fill(~present.to(f.device), -torch.inf)


@torch.no_grad()
def centroid_labels(features: Tensor, predictions: Tensor, processes: Processes | None = None) -> Tensor:
    """Pseudo-labels by the nearest class centroid, estimated twice (SHOT; Liang et al., 2020).

        g_j = (f_j, 1)/‖(f_j, 1)‖,  μ_c ∝ Σ_j P_jc g_j,  ỹ_j = argmax_c cos(g_j, μ_c)

    and once more with the ỹ just found in place of P. Classes that no row predicts are left out, as are those that no
    row has after the first estimate.

    Shapes: `features` (n, K), `predictions` P (n, C), result (n,). In float32 or wider. With `processes` these are the
    rows of this one, and the centroids are those of all.

    >>> import torch
    >>> features = torch.tensor([[5.0, 0.0], [4.0, 1.0], [0.0, 5.0]])
    >>> wrong_once = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.1, 0.9]])
    >>> centroid_labels(features, wrong_once).tolist()
    [0, 0, 1]
    """
    return _centroid_cosines(features, predictions, processes).argmax(1)


@torch.no_grad()
def product_labels(
    features: Tensor, predictions: Tensor, temperature: float = 0.1, processes: Processes | None = None
) -> Tensor:
    """Pseudo-labels that prediction and nearness to the class centroids agree on.

        ỹ_j = argmax_c P_jc · softmax_c(cos(g_j, μ_c)/τ)

    with g and the twice-estimated centroids μ of `centroid_labels`. τ = 0.1 makes a cosine of 0.1 more count like a
    probability e times as large. A class without a centroid is no label.

    Shapes: `features` (n, K), `predictions` P (n, C), result (n,). In float32 or wider. `processes` as there.

    >>> import torch
    >>> features = torch.tensor([[5.0, 0.0], [4.0, 1.0], [0.0, 5.0]])
    >>> unsure_once, sure = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.1, 0.9]]), torch.eye(2)[[0, 1, 1]]
    >>> product_labels(features, unsure_once).tolist(), product_labels(features, sure).tolist()
    ([0, 0, 1], [0, 1, 1])
    """
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, expected more than zero.")
    cosines = _centroid_cosines(features, predictions, processes)
    log_p = predictions.to(cosines).clamp_min(torch.finfo(cosines.dtype).tiny).log()
    return (log_p + cosines / temperature).argmax(1)  # softmax adds the same to all classes


def _centroid_cosines(features: Tensor, predictions: Tensor, processes: Processes | None) -> Tensor:
    """The cosines (n, C) of rows and the twice-estimated class centroids; −∞ for a class that has none."""
    check_matrix("predictions", predictions, features.shape[0], predictions.shape[-1], "rows by classes")
    check_matrix("features", features, None, features.shape[-1], "rows by features")
    with full_precision(features):
        dtype = computing_dtype(features, predictions)
        g = F.normalize(F.pad(features.to(dtype), (0, 1), value=1.0), dim=1)
        p = predictions.to(g)
        # The length of a centroid is no part of a cosine: sums do in place of means.

        def of_all(table: Tensor) -> Tensor:
            return table if processes is None else processes.sum(table)

        labels = nearest_centroid(g, of_all(p.T @ g), of_all(_counts(p.argmax(1), p)) > 0)
        one_hot = F.one_hot(labels, p.shape[1]).to(g)
        return _cosines(g, of_all(one_hot.T @ g), of_all(_counts(labels, p)) > 0)


def _counts(labels: Tensor, predictions: Tensor) -> Tensor:
    return torch.bincount(labels, minlength=predictions.shape[1])


def pseudo_label_loss(logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    """Σ_j w_j (−log softmax(logits_j)[ỹ_j]) / Σ_j w_j, the weights constants; 0 if all of them are.

    Shapes: `logits` (B, C), `labels` ỹ (B,), `weight` w (B,), not negative; None is one for each. A row of weight zero
    may have any label, also one that is no class. In float32 or wider.

    >>> import torch
    >>> weight = torch.tensor([1.0, 0.0])
    >>> round(pseudo_label_loss(torch.zeros(2, 4), torch.tensor([1, 4]), weight).item(), 4)  # log 4
    1.3863
    """
    check_logits(logits)
    check_vector("labels", labels, logits.shape[0])
    if weight is not None and tuple(weight.shape) != tuple(labels.shape):
        raise ValueError(f"weight has shape {tuple(weight.shape)}, expected ({len(labels)},): one for each label.")
    with full_precision(logits):
        log_p = F.log_softmax(logits.to(computing_dtype(logits)), dim=1)
        w = torch.ones_like(log_p[:, 0]) if weight is None else weight.detach().to(log_p)
        labels = labels.to(log_p.device, torch.int64).clamp(0, logits.shape[1] - 1)
        loss = -log_p.gather(1, labels[:, None])[:, 0]
        return (w * loss).sum() / w.sum().clamp_min(torch.finfo(w.dtype).tiny)
