"""Target terms that favour even classes, and the shares that they favour instead where a user or the data gives them.

Shapes: C classes.
"""

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tsadapt.errors import UserError, few
from tsadapt.objectives.base import Context, TargetTerm
from tsadapt.settings import setting

__all__ = ["PriorTerm"]

EVEN = 0.9
"""Class shares whose entropy is below this part of the largest one are far from equal."""

WORDS = ("uniform", "source", "estimated")
"""What a class prior can be beside a table of shares."""


class PriorTerm(TargetTerm):
    """A target term that spreads predictions over the classes: evenly, or by `class_prior`.

    Estimated shares come from the context when they are first needed, and survive a restart.
    """

    class_prior: str | dict[str, float] = setting(
        "uniform",
        "Target class shares that the terms favour: uniform, source, estimated, or a JSON file {class: share}.",
        metavar="FILE",
    )

    prior: Tensor | None

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        self.register_buffer("prior", self._known(), persistent=self.class_prior == "estimated")

    @classmethod
    def resolved(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """A file of class shares becomes its content, so that a config says all."""
        given = settings.get("class_prior", "uniform")
        if not isinstance(given, str) or given in WORDS:
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

    def shares(self) -> Tensor | None:
        """The class shares (C,) to favour; None if they are equal."""
        if self.prior is not None and not bool(self.prior.any()):
            if self.context.class_shares is None:
                raise ValueError("class_prior is estimated, but nothing here estimates the target's class shares")
            self.prior.copy_(self.context.class_shares())
        return self.prior

    def notes(self) -> list[str]:
        """Whether the source's classes are far from the equal shares that the term favours."""
        if self.class_prior != "uniform" or not _uneven(self.context.source_share):
            return []
        return [
            "The source classes are far from equally frequent. If the target's are too, terms that favour equal shares"
            " pull the wrong way. Pass the shares: --class-prior source, estimated, or FILE."
        ]

    def remarks(self, predicted_share: Tensor) -> list[str]:
        """Whether the predictions, or the shares that were estimated, are far from equal."""
        classes = self.context.classes
        if self.class_prior == "estimated" and self.prior is not None:
            return [
                f"Class shares of the target, estimated: {_listed(self.prior, classes)}.{_oddity(self.prior, classes)}"
            ]
        if self.class_prior != "uniform" or not _uneven(predicted_share):
            return []
        return [
            "The predicted classes of the target are far from equally frequent, but the objective favours equal shares."
            f"{_oddity(predicted_share, classes)} Try --class-prior estimated, or pass shares that you know:"
            " --class-prior FILE."
        ]

    def _known(self) -> Tensor | None:
        """The shares that are known before training; zeros if they are yet to be estimated."""
        if self.class_prior == "uniform":
            return None
        if self.class_prior == "estimated":
            return torch.zeros(len(self.context.classes))
        share = self.context.source_share.double()
        if isinstance(self.class_prior, dict):
            share = torch.tensor([self.class_prior[name] for name in self.context.classes], dtype=torch.float64)
        return (share / share.sum()).float()


LACKING, DOMINANT = 0.2, 0.5
"""A class is nearly absent below this part of an even share, and dominates above this share of all rows."""


def _oddity(share: Tensor, classes: tuple[str, ...]) -> str:
    """Which classes seem to be missing, and which one dominates; a sentence, or nothing."""
    missing = [name for name, s in zip(classes, share.tolist(), strict=True) if s < LACKING / len(classes)]
    most = int(share.argmax())
    found = [f"hardly any rows of {few(missing)}"] if missing else []
    if float(share[most]) > max(DOMINANT, 2 / len(classes)):
        found.append(f"{float(share[most]):.0%} of all rows are {classes[most]}")
    return f" The target seems uneven: {'; '.join(found)}." if found else ""


def _listed(share: Tensor, classes: tuple[str, ...]) -> str:
    """The largest shares, in words."""
    order = share.argsort(descending=True).tolist()
    parts = [f"{classes[c]} {float(share[c]):.0%}" for c in order[:MOST_LISTED]]
    return ", ".join(parts) + (f", and {len(order) - MOST_LISTED} more" if len(order) > MOST_LISTED else "")


MOST_LISTED = 8


def _read_shares(path: Path) -> Any:
    if not path.expanduser().is_file():
        raise UserError(
            f"class_prior is {str(path)!r}, expected uniform, source, estimated, or a JSON file {{class: share}}."
        )
    try:
        return json.loads(path.expanduser().read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}. Expected {{class: share}}.") from error


def _uneven(share: Tensor) -> bool:
    """Whether class shares are far from equal: an entropy below 90 % of the most it can be."""
    entropy = -(share * share.clamp_min(1e-12).log()).sum()
    return bool(entropy < EVEN * math.log(len(share)))
