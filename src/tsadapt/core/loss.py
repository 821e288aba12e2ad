"""TSA for anyone's training loop."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from tsadapt.core.checks import check_matrix
from tsadapt.core.information import mutual_information_loss
from tsadapt.core.memory import FeatureMemory
from tsadapt.core.merged import ShardedMemory
from tsadapt.core.processes import Processes
from tsadapt.core.schedules import augmentation_strength
from tsadapt.core.transferable import Covariance, Policy, check_statistics, transferable_cross_entropy

__all__ = ["TSALoss"]


class LinearHead(Protocol):
    """A head linear in the features, such as `nn.Linear`."""

    weight: Tensor

    def __call__(self, features: Tensor, /) -> Tensor:
        """The logits (B, C) of features (B, K)."""


class TSALoss(nn.Module):
    """L_TSA = L_∞ + β L_MI, with the memories of both domains.

    Call it once an iteration with the linear head and the features that go into it:

        terms = tsa(head, f_s, y_s, i_s, f_t, i_t, progress)
        sum(terms.values()).backward()

    Shapes: `f_s` (B_s, K), `y_s` (B_s,), `f_t` (B_t, K); `i_s` and `i_t` are the samples' indices in their datasets,
    0 ≤ i_s < `n_source`, 0 ≤ i_t < `n_target`; `progress` = t/T for t = 1…T. Target pseudo-labels are the argmax of
    the head's logits. The terms are ready to be summed: "tsa" is L_∞ at λ = λ0·progress, "mi" is β L_MI.

    The memories are buffers and belong into your checkpoint. They are written in training mode only. `storage` is the
    dtype of the rows kept (float16 halves the memory). All other arguments are those of `transferable_cross_entropy`.

    Where torch.distributed is up, the loss is that of the rows of all processes of `process_group` (None: all), the
    same in each, and its gradient is right after the mean that `DistributedDataParallel` takes. Batches may differ in
    size. Every process keeps its part of the memories, and has a state of its own to save.

    >>> import torch
    >>> head, tsa = torch.nn.Linear(16, 5), TSALoss(classes=5, dim=16, n_source=100, n_target=80)
    >>> f_s, y_s, i_s = torch.randn(8, 16), torch.randint(5, (8,)), torch.arange(8)
    >>> f_t, i_t = torch.randn(8, 16), torch.arange(8)
    >>> terms = tsa(head, f_s, y_s, i_s, f_t, i_t, progress=0.5)
    >>> sorted(terms)
    ['mi', 'tsa']
    >>> sum(terms.values()).backward()
    """

    def __init__(
        self,
        classes: int,
        dim: int,
        n_source: int,
        n_target: int,
        lambda0: float = 0.25,
        beta: float = 0.1,
        *,
        mean_shift: bool = True,
        covariance: Covariance = "target",
        policy: Policy = "skip",
        min_count: int = 1,
        label_smoothing: float = 0.0,
        storage: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.processes = Processes.here(process_group)
        if lambda0 < 0 or beta < 0:
            raise ValueError(f"lambda0 is {lambda0} and beta is {beta}, expected zero or more.")
        self.lambda0, self.beta, self.label_smoothing = lambda0, beta, label_smoothing
        self.mean_shift, self.covariance, self.policy, self.min_count = mean_shift, covariance, policy, min_count

        def memory(size: int, spreads: bool) -> FeatureMemory | ShardedMemory:
            # A domain whose covariance is not used needs no second moments, whatever its size.
            options: Any = {"dtype": storage, "device": device, "second_moments": None if spreads else False}
            if self.processes is not None:
                return ShardedMemory(self.processes, size, dim, classes, **options)
            return FeatureMemory(size, dim, classes, **options)

        self.source = memory(n_source, covariance == "source")
        self.target = memory(n_target, covariance == "target")

    def forward(
        self, head: LinearHead, f_s: Tensor, y_s: Tensor, i_s: Tensor, f_t: Tensor, i_t: Tensor, progress: float
    ) -> dict[str, Tensor]:
        """The terms of the loss, weighted; both memories take in the batch first."""
        if not isinstance(getattr(head, "weight", None), Tensor):
            raise TypeError(f"head is {type(head).__name__}, expected a linear layer with a weight, such as nn.Linear.")
        for name, f in (("f_s", f_s), ("f_t", f_t)):
            check_matrix(name, f, None, self.source.dim, f"TSALoss was made for {self.source.dim} features")
        check_statistics("TSALoss", self.source, head.weight)
        if self.processes is not None:
            f_s, y_s, i_s = _gathered(self.processes, f_s, y_s, i_s)
            f_t, i_t = _gathered(self.processes, f_t, i_t)
        logits_s, logits_t = head(f_s), head(f_t)
        if self.training:
            self.source.write(i_s, f_s, y_s)
            self.target.write(i_t, f_t, logits_t.detach().argmax(1))
        tsa = transferable_cross_entropy(
            logits_s,
            y_s,
            head.weight,
            self.source,
            self.target,
            augmentation_strength(progress, self.lambda0),
            mean_shift=self.mean_shift,
            covariance=self.covariance,
            policy=self.policy,
            min_count=self.min_count,
            label_smoothing=self.label_smoothing,
        )
        return {"tsa": tsa, "mi": self.beta * mutual_information_loss(logits_t)}


def _gathered(processes: Processes, features: Tensor, *integers: Tensor) -> list[Tensor]:
    """The rows of all processes, with gradients at the features."""
    where = features.device
    here = torch.tensor([len(features)], device=where)
    sizes: list[int] = processes.collect(here, [1] * processes.number).tolist()
    rest = [processes.collect(one.to(where, torch.int64), sizes) for one in integers]
    return [processes.gather(features, sizes), *rest]
