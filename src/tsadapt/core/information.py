"""Entropy of the target's predictions, and mutual information between them and its features.

Shapes: n target samples, B of them in a batch, C classes.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from tsadapt.core.buffers import PreciseBuffers
from tsadapt.core.checks import check_logits, check_matrix, check_prior, check_range, check_vector
from tsadapt.core.precision import computing_dtype, full_precision
from tsadapt.core.processes import Processes

__all__ = ["PredictionMemory", "conditional_entropy", "mutual_information_loss"]

HALF_ABOVE = 1 << 28
"""Bytes of predictions in float32 above which a memory keeps them in float16."""


def mutual_information_loss(logits: Tensor, prior: Tensor | None = None, marginal: Tensor | None = None) -> Tensor:
    """L_MI, the negative mutual information of predictions; minimise it (the paper's Eq. for L_MI).

        L_MI = Σ_c P̂^c log P̂^c − (1/B) Σ_j Σ_c P_j^c log P_j^c,    P = softmax(logits),  P̂ = (1/B) Σ_j P_j

    Shape: `logits` (B, C). Between −log C (confident and balanced) and 0 (all predictions alike). The average is over
    the batch, so no less than −log B can be reached when B < C. Computed in float32 or wider.

    The first sum is least when all classes are equally frequent. If they are not, give their frequencies as `prior`
    (C,), positive: Σ_c P̂^c log(P̂^c/prior^c) − log C takes its place, the same thing for a uniform prior.

    `marginal` a (C,) are the mean predictions over more rows than the batch has, as constants; then

        L_MI = −(1/B) Σ_j KL(P_j ‖ a) = Σ_c P̂^c log a^c − (1/B) Σ_j Σ_c P_j^c log P_j^c

    With a = P̂ both value and gradient are those of the formula above, since Σ_c dP̂^c = 0.

    >>> import torch
    >>> round(mutual_information_loss(torch.eye(4) * 100).item(), 4)  # −log 4
    -1.3863
    >>> mutual_information_loss(torch.zeros(5, 4)).item()
    0.0
    >>> skewed = torch.eye(2)[[0, 0, 0, 1]] * 100
    >>> fits = mutual_information_loss(skewed, prior=torch.tensor([0.75, 0.25]))
    >>> bool(fits < mutual_information_loss(skewed)), round(fits.item(), 4)  # −log 2
    (True, -0.6931)
    """
    check_logits(logits)
    check_prior(prior, logits.shape[1])
    if marginal is not None and tuple(marginal.shape) != (logits.shape[1],):
        raise ValueError(f"marginal has shape {tuple(marginal.shape)}, expected {logits.shape[1]} mean predictions.")
    with full_precision(logits):
        log_p = F.log_softmax(logits.to(computing_dtype(logits)), dim=1)
        p = log_p.exp()
        mean = p.mean(0)
        # A class of no probability adds nothing, and its logarithm must not make the gradient infinite.
        a = mean if marginal is None else marginal.detach().to(p)
        log_a = a.clamp_min(torch.finfo(p.dtype).tiny).log()
        if prior is not None:
            log_a = log_a - (prior.to(p) * prior.numel()).log()
        return (mean * log_a).sum() - (p * log_p).sum(1).mean()


def conditional_entropy(logits: Tensor) -> Tensor:
    """(1/B) Σ_j H(P_j) = −(1/B) Σ_j Σ_c P_j^c log P_j^c, P = softmax(logits): how uncertain predictions are.

    Shape: `logits` (B, C). Between 0 (certain) and log C. Computed in float32 or wider, the logarithm from the logits.

    >>> import torch
    >>> round(conditional_entropy(torch.zeros(3, 4)).item(), 4)  # log 4
    1.3863
    """
    check_logits(logits)
    with full_precision(logits):
        log_p = F.log_softmax(logits.to(computing_dtype(logits)), dim=1)
        return -(log_p.exp() * log_p).sum(1).mean()


class PredictionMemory(PreciseBuffers):
    """The latest prediction of each of `size` samples, and their mean a = (1/n) Σ_j P_j over those written.

    Rows are kept in float32, or in float16 where they would take more than 256 MB; their sum is kept in float64 of the
    rows as stored, so a row leaves exactly what it brought. With `processes` each keeps its block of the rows, and all
    of them write the same batches.

    >>> memory = PredictionMemory(size=10, classes=2)
    >>> memory.write(torch.tensor([3, 4]), torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    >>> memory.write(torch.tensor([4]), torch.tensor([[0.0, 1.0]]))
    >>> memory.mean().tolist()
    [0.5, 0.5]
    """

    predictions: Tensor
    written: Tensor
    total: Tensor

    def __init__(self, size: int, classes: int, processes: Processes | None = None) -> None:
        super().__init__()
        self.processes = processes
        self.block = slice(0, size) if processes is None else processes.block(size)
        held = self.block.stop - self.block.start
        dtype = torch.float32 if 4 * size * classes <= HALF_ABOVE else torch.float16
        self.register_buffer("predictions", torch.zeros(held, classes, dtype=dtype))
        self.register_buffer("written", torch.zeros(size, dtype=torch.bool))
        self.register_buffer("total", torch.zeros(classes, dtype=torch.float64))

    def write(self, index: Tensor, predictions: Tensor) -> None:
        """Replace rows `index` (B,) by `predictions` (B, C); of an index twice in one write, the first counts."""
        rows, size = self.predictions, len(self.written)
        check_matrix("predictions", predictions, None, rows.shape[1], f"this memory holds {rows.shape[1]} classes")
        check_vector("index", index, predictions.shape[0])
        check_range("index", index.tolist(), size, "rows in this memory")
        index = index.to(rows.device)
        index, where = torch.unique(index, return_inverse=True)
        first = where.new_full(index.shape, where.shape[0])
        first = first.scatter_reduce(0, where, torch.arange(where.shape[0], device=where.device), "amin")
        self.written[index] = True
        if self.processes is not None:
            mine = (index >= self.block.start) & (index < self.block.stop)
            index, first = index[mine] - self.block.start, first[mine]
        new = predictions.detach().to(rows).index_select(0, first)
        self.total += new.double().sum(0) - rows.index_select(0, index).double().sum(0)
        rows.index_copy_(0, index, new)

    def deal(self, predictions: Tensor, written: Tensor) -> None:
        """Take up all rows (n, C), this process's block of them, and which of all are written (n,)."""
        self.predictions.copy_(predictions[self.block])
        self.written.copy_(written)
        self.total.copy_(self.predictions.double().sum(0))

    def rows(self, index: Tensor) -> Tensor:
        """The rows at an index of any shape (…), in float32: (…, C); zero where `written` is False."""
        index = index.to(self.predictions.device)
        if self.processes is None:
            return self.predictions[index].float()
        mine = (index >= self.block.start) & (index < self.block.stop)
        found = self.predictions.new_zeros(*index.shape, self.predictions.shape[1], dtype=torch.float32)
        found[mine] = self.predictions[index[mine] - self.block.start].float()
        return self.processes.sum(found)

    def mean(self) -> Tensor:
        """A (C,), of the rows written so far; at least one."""
        total = self.total if self.processes is None else self.processes.sum(self.total)
        return (total / self.written.sum().clamp_min(1)).float()
