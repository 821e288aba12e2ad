"""Mutual-information maximisation on the target: confident predictions, spread over the classes.

    β·1[t/T > warmup]·L_MI,   L_MI = −mean_j KL(P_j ‖ a)

a is the mean prediction: of the batch, or of the latest predictions of all target rows, as a constant. The gradient is
that of mutual information either way: ∂L_MI/∂P_j^c = (log a^c − log P_j^c)/B, up to a constant that Σ_c P_j^c = 1 takes
away. With a from all rows, batches that make up the target add up to the gradient of the whole target's information.
"""

from typing import Any, Literal

from torch import Tensor

from tsadapt.core import PredictionMemory, mutual_information_loss
from tsadapt.objectives.base import TARGET_TERMS, Context, Outputs
from tsadapt.objectives.class_prior import PriorTerm
from tsadapt.objectives.target_rows import averaged_logits, few_rows
from tsadapt.settings import setting

__all__ = ["MutualInformation"]


@TARGET_TERMS.register("mi")
class MutualInformation(PriorTerm):
    """Mutual information of target features and predictions, maximised: β·L_MI.

    With several heads it is that of the average of their probabilities.
    """

    paper = "Li et al., CVPR 2021"
    practice = (
        "It assumes that the target has the source's classes in roughly equal shares, or in those of `--class-prior`, "
        "and that gaps between classes survive the shift. It helps on almost every task here, and brings most of the "
        "gain of `--tsa`. It hurts where the target lacks classes or has very uneven ones, and it confirms what the "
        "network predicts when it starts: `--beta 0.1` is the paper's, and larger ones need `--warmup`, the share of "
        "the steps before it starts. `--marginal memory` takes the mean prediction over all target rows instead of "
        "the batch; batches then add up to the gradient of the whole target's information. `auto` does so where "
        "classes outnumber half a batch."
    )
    cost = "one pass; with a memory, one prediction of each target row is kept"

    beta: float = setting(0.1, "Weight of mutual information (β).", at_least=0)
    warmup: float = setting(0.0, "Share of the steps before mutual information starts.", at_least=0, at_most=1)
    marginal: Literal["auto", "batch", "memory"] = setting(
        "auto",
        "Mean prediction in MI: of the batch, of a memory of all target rows, or the memory if classes outnumber half"
        " a batch.",
    )

    memory: PredictionMemory | None

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        remembers = self.marginal == "memory" or (self.marginal == "auto" and few_rows(context))
        self.memory = PredictionMemory(context.sizes[1], len(context.classes), context.processes) if remembers else None

    def forward(self, out: Outputs) -> Tensor:
        """β·L_MI of the target batch; zero during the warm-up, when the memory is written already."""
        logits, marginal = averaged_logits(out), None
        if self.memory is not None:
            if not out.again:
                self.memory.write(out.both()[1].index, logits.detach().softmax(1))
            marginal = self.memory.mean()
        beta = self.beta if out.progress > self.warmup else 0.0
        return beta * mutual_information_loss(logits, self.shares(), marginal)
