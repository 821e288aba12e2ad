"""Mutual-information maximisation on the target: confident predictions, spread over the classes.

    β·1[t/T > warmup]·L_MI,   L_MI = −mean_j KL(P_j ‖ a)

a is the mean prediction: of the batch, or of the latest predictions of all target rows, as a constant. The gradient is
that of mutual information either way: ∂L_MI/∂P_j^c = (log a^c − log P_j^c)/B, up to a constant that Σ_c P_j^c = 1 takes
away. With a from all rows, batches that make up the target add up to the gradient of the whole target's information.
"""

import json
import math
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from tsadapt.core import PredictionMemory, mutual_information_loss
from tsadapt.errors import UserError, few
from tsadapt.objectives.base import TARGET_TERMS, Context, Outputs, TargetTerm
from tsadapt.objectives.target_rows import averaged_logits, few_rows
from tsadapt.settings import setting

__all__ = ["MutualInformation"]

EVEN = 0.9
"""Class shares whose entropy is below this part of the largest one are far from equal."""


@TARGET_TERMS.register("mi")
class MutualInformation(TargetTerm):
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
    class_prior: str | dict[str, float] = setting(
        "uniform", "Target class shares for MI: uniform, source, or a JSON file {class: share}.", metavar="FILE"
    )

    marginal: Literal["auto", "batch", "memory"] = setting(
        "auto",
        "Mean prediction in MI: of the batch, of a memory of all target rows, or the memory if classes outnumber half"
        " a batch.",
    )

    prior: Tensor | None
    memory: PredictionMemory | None

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        self.register_buffer("prior", self._prior(), persistent=False)
        remembers = self.marginal == "memory" or (self.marginal == "auto" and few_rows(context))
        self.memory = PredictionMemory(context.sizes[1], len(context.classes)) if remembers else None

    @classmethod
    def resolved(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """A file of class shares becomes its content, so that a config says all."""
        given = settings.get("class_prior", "uniform")
        if not isinstance(given, str) or given in ("uniform", "source"):
            return settings
        return {**settings, "class_prior": cls.settings["class_prior"].check(_read_shares(Path(given)))}

    @classmethod
    def check_classes(cls, settings: dict[str, Any], classes: tuple[str, ...]) -> None:
        """Every class needs a share."""
        given = settings.get("class_prior", "uniform")
        if isinstance(given, dict):
            foreign = [name for name in given if name not in classes]
            if foreign:
                raise UserError(f"class_prior names {few(foreign)}, which the source does not have.")
            missing = [name for name in classes if not given.get(name, 0) > 0 or not math.isfinite(given[name])]
            if missing:
                raise UserError(
                    f"class_prior has no share above zero for {few(missing)}: expected one for every class."
                )

    def forward(self, out: Outputs) -> Tensor:
        """β·L_MI of the target batch; zero during the warm-up, when the memory is written already."""
        logits, marginal = averaged_logits(out), None
        if self.memory is not None:
            self.memory.write(out.both()[1].index, logits.detach().softmax(1))
            marginal = self.memory.mean()
        beta = self.beta if out.progress > self.warmup else 0.0
        return beta * mutual_information_loss(logits, self.prior, marginal)

    def notes(self) -> list[str]:
        """Whether the source's classes are far from the equal shares that MI favours."""
        if self.class_prior != "uniform" or not _uneven(self.context.source_share):
            return []
        return [
            "The source classes are far from equally frequent. If the target's are too, mutual information pulls the"
            " wrong way. Pass the shares: --class-prior source, or --class-prior FILE."
        ]

    def remarks(self, predicted_share: Tensor) -> list[str]:
        """Whether the predictions are far from the equal shares that MI favours."""
        if self.class_prior != "uniform" or not _uneven(predicted_share):
            return []
        return [
            "The predicted classes of the target are far from equally frequent, but mutual information favours equal"
            " shares. If you know the shares, pass them: --class-prior FILE."
        ]

    def _prior(self) -> Tensor | None:
        if self.class_prior == "uniform":
            return None
        share = self.context.source_share.double()
        if isinstance(self.class_prior, dict):
            share = torch.tensor([self.class_prior[name] for name in self.context.classes], dtype=torch.float64)
        return (share / share.sum()).float()


def _read_shares(path: Path) -> Any:
    if not path.expanduser().is_file():
        raise UserError(f"class_prior is {str(path)!r}, expected uniform, source, or a JSON file {{class: share}}.")
    try:
        return json.loads(path.expanduser().read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}. Expected {{class: share}}.") from error


def _uneven(share: Tensor) -> bool:
    """Whether class shares are far from equal: an entropy below 90 % of the most it can be."""
    entropy = -(share * share.clamp_min(1e-12).log()).sum()
    return bool(entropy < EVEN * math.log(len(share)))
