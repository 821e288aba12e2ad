"""tsadapt list: what there is."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from tsadapt.cli.options import Text
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
    stages: Text = None
    """For backbones: the stages of this one, where --train-from can begin, and what each costs."""

    def __call__(self) -> int:
        """Print one a line."""
        if self.stages is not None:
            return _print_stages(self.kind, self.stages)
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


def _print_stages(kind: str, name: str) -> int:
    """A table of the stages of a backbone."""
    if kind != "backbones":
        raise UserError(f"--stages is for backbones: tsadapt list backbones --stages {name}")
    from tsadapt.errors import printable
    from tsadapt.models.encoders import find_backbone
    from tsadapt.models.stages import stages_of

    rows = [("--train-from", "", "parameters", "cost", "activations before it", "bytes an image")]
    for stage in stages_of(find_backbone(name, "none")):
        number = "" if stage.number is None else f"or {stage.number}"
        shape = " × ".join(map(str, stage.shape))
        numbers = (f"{stage.parameters:,}", f"{stage.share:.1%}", shape, f"{stage.stored_bytes:,}")
        rows.append((stage.name, number, *numbers))
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    for row in rows:
        left, right = zip(row[:2], widths[:2], strict=True), zip(row[2:], widths[2:], strict=True)
        cells = [cell.ljust(width) for cell, width in left] + [cell.rjust(width) for cell, width in right]
        print(printable("  ".join(cells)))
    return 0


def _terms(kind: str) -> list[str]:
    """Terms with what they do, what a method's terms are called, and their settings."""
    from tsadapt.objectives.base import METHODS, SOURCE_TERMS, TARGET_TERMS

    registry: Any = {"methods": METHODS, "source-terms": SOURCE_TERMS, "target-terms": TARGET_TERMS}[kind]
    lines = []
    for name in registry:
        cls = registry[name]
        line = f"{name}: {(cls.__doc__ or '').splitlines()[0]}"
        line += f" Terms: {', '.join(cls.terms)}." if getattr(cls, "terms", ()) else ""
        settings = ", ".join(f"{one.name} {one.shown or one.default}" for one in cls.settings.values())
        lines.append(line + (f" Settings: {settings}." if settings else ""))
    return lines
