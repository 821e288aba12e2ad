"""tsadapt list: what there is."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from tsadapt.errors import UserError

__all__ = ["List"]


Kind = Literal["methods", "source-terms", "target-terms", "networks", "datasets", "backbones", "validators"]


@dataclass(frozen=True)
class List:
    """List the available methods, source terms, target terms, networks, datasets, backbones or validators.

    Example: tsadapt list backbones resnet
    """

    kind: tyro.conf.Positional[Kind]
    """What to list."""
    pattern: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[PATTERN]", help_behavior_hint="")] = ""
    """Only names that contain this."""

    def __call__(self) -> int:
        """Print one a line."""
        found = [line for line in _lines(self.kind) if self.pattern in line.partition(": ")[0]]
        if not found:
            raise UserError(f"None of the {self.kind} has {self.pattern!r} in its name.")
        print("\n".join(found))
        return 0


def _lines(kind: str) -> list[str]:
    if kind == "datasets":
        from tsadapt.data.open import dataset_names

        return dataset_names()
    if kind == "backbones":
        from tsadapt.models.backbones import backbone_names
        from tsadapt.models.encoders import BACKBONES

        return [*BACKBONES, *backbone_names()]
    if kind == "validators":
        from tsadapt.selection.select import validator_lines

        return validator_lines()
    if kind == "networks":
        from tsadapt.models.networks import NETWORKS

        return [f"{name}: {NETWORKS[name].summary}" for name in NETWORKS]
    return _terms(kind)


def _terms(kind: str) -> list[str]:
    """Terms with what they do, what a method's terms are called, and their settings."""
    from tsadapt.objectives.base import METHODS, SOURCE_TERMS, TARGET_TERMS

    registry: Any = {"methods": METHODS, "source-terms": SOURCE_TERMS, "target-terms": TARGET_TERMS}[kind]
    lines = []
    for name in registry:
        cls = registry[name]
        line = f"{name}: {(cls.__doc__ or '').splitlines()[0]}"
        line += f" Terms: {', '.join(cls.terms)}." if getattr(cls, "terms", ()) else ""
        settings = ", ".join(f"{one.name} {one.default}" for one in cls.settings.values())
        lines.append(line + (f" Settings: {settings}." if settings else ""))
    return lines
