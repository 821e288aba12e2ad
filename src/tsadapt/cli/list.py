"""tsadapt list: what there is."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from tsadapt.cli.options import Text
from tsadapt.errors import UserError, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsadapt.report.terms import Facts

__all__ = ["List"]


Kind = Literal["methods", "source-terms", "target-terms", "networks", "presets", "datasets", "backbones", "validators"]


@dataclass(frozen=True)
class List:
    """List the available methods, source terms, target terms, networks, presets, datasets, backbones or validators.

    Example: tsadapt list backbones resnet
    """

    kind: tyro.conf.Positional[Kind]
    """What to list."""
    pattern: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[PATTERN]", help_behavior_hint="")] = ""
    """Only names that contain this."""
    stages: Text = None
    """For backbones: the stages of this one, where --train-from can begin, and what each costs."""

    def __call__(self) -> int:
        """Print one a line; terms in tables, methods together with all terms."""
        if self.stages is not None:
            return _print_stages(self.kind, self.stages)
        if self.kind in ("methods", "source-terms", "target-terms"):
            return _print_terms(self.kind, self.pattern)
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
    if kind == "presets":
        from tsadapt.presets import PRESETS

        return [
            f"{name}: {preset.what} {_flags(preset.settings)} {preset.measured}" for name, preset in PRESETS.items()
        ]
    if kind == "validators":
        from tsadapt.selection.select import validator_lines

        return validator_lines()
    from tsadapt.models.networks import NETWORKS

    return [f"{name}: {NETWORKS[name].summary}" for name in NETWORKS]


def _flags(settings: "Mapping[str, Any]") -> str:
    """Settings in the spelling of a config."""
    values = {k: ", ".join(v) if isinstance(v, tuple) else v for k, v in settings.items()}
    return f"[{', '.join(f'{name} = {value}' for name, value in values.items())}]"


def _print_stages(kind: str, name: str) -> int:
    """A table of the stages of a backbone."""
    if kind != "backbones":
        raise UserError(f"--stages is for backbones: tsadapt list backbones --stages {name}")
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


def _print_terms(kind: str, pattern: str) -> int:
    """Tables of terms: their year, kind, needs, cost, whether TSA composes with them, and what they do."""
    from tsadapt.report.terms import GROUPS, facts

    # A method is chosen together with the terms that stand beside it.
    groups = [*GROUPS] if kind == "methods" else [kind.replace("-", " ")]
    found = {group: [one for one in facts(group) if pattern in one.name] for group in groups}
    found = {group: terms for group, terms in found.items() if terms}
    if not found:
        raise UserError(f"None of the {' and '.join(groups)} has {pattern!r} in its name.")
    tables = {group: _table(terms) for group, terms in found.items()}
    if sys.stdout.isatty():
        _print_on_terminal(tables)
        return 0
    for i, (group, table) in enumerate(tables.items()):
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        print(f"{chr(10) if i else ''}{group}")
        for row in table:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            print(printable("  ".join(cells).rstrip()))
    return 0


def _table(terms: "list[Facts]") -> list[tuple[str, ...]]:
    """A head and a row for each term; only methods are of several kinds."""
    kinds = any(one.kind for one in terms)
    table = [("name", "year", *(["kind"] if kinds else []), "needs", "cost", "TSA", "what it does")]
    for one in terms:
        kind = [one.kind] if kinds else []
        table.append((one.name, one.year, *kind, one.needs or "–", one.cost, one.composes, one.summary))
    return table


def _print_on_terminal(tables: dict[str, list[tuple[str, ...]]]) -> None:
    """The same, in columns that fold to the width of the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for i, (group, (head, *rows)) in enumerate(tables.items()):
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in head:
            table.add_column(name, no_wrap=name in ("name", "year"), min_width=32 if name == head[-1] else None)
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        if i:
            console.print()
        console.print(Text(group, "bold"))
        console.print(table)
