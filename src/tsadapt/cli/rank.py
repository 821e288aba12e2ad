"""tsadapt rank: which backbone."""

import sys
from dataclasses import asdict, dataclass
from typing import Annotated

import tyro

from tsadapt.cli.options import WHOLE, File, MaybeWhole

__all__ = ["Rank"]


@dataclass(frozen=True)
class Rank:
    """Rank backbones for a labelled SOURCE and an unlabelled TARGET of images, before anything is trained.

    LogME says how well the source's classes can be read off a backbone's features: the rank is by that. The A-distance
    says how far apart the domains are (0: alike, 2: told apart without error). Features are computed once and kept, and
    training on the frozen backbone uses them.

    Example: tsadapt rank photos/labelled photos/new --backbones resnet50,convnext_tiny,torchvision:mobilenet_v2@160
    """

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]
    """The labelled domain."""
    target: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TARGET")]
    """The domain to adapt to; its labels, if it has any, are not looked at."""
    backbones: Annotated[str, tyro.conf.arg(metavar="A,B,…", help_behavior_hint="(required)")]
    """Two or more, with commas: timm networks, torchvision:NAME, your own FILE.py:FUNCTION. NAME@SIZE takes images of
    another size, NAME=FILE weights from a file (none: random ones)."""
    out: File = None
    """Where to write the scores as JSON."""
    workers: Annotated[MaybeWhole, WHOLE, tyro.conf.arg(help_behavior_hint="(default: one per core, at most 8)")] = None
    """Processes that decode images."""
    device: Annotated[str, tyro.conf.arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda, …"""
    quiet: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Hide progress."""

    def __call__(self) -> int:
        """Rank, print the table, and write it."""
        from rich.console import Console
        from rich.table import Table

        from tsadapt.cli.output import check_output, output
        from tsadapt.errors import UserError, printable
        from tsadapt.files import as_json, number
        from tsadapt.runs.rank import parse_backbone, rank_backbones

        if self.workers is not None and self.workers < 0:
            raise UserError(f"workers is {self.workers}, expected zero or more.")
        check_output(self.out)
        asked = [parse_backbone(name) for name in self.backbones.split(",") if name.strip()]
        try:
            found = rank_backbones(
                self.source, self.target, asked, device=self.device, workers=self.workers, quiet=self.quiet
            )
        except KeyboardInterrupt as stopped:
            raise KeyboardInterrupt("the same command resumes") from stopped
        table = Table(box=None, pad_edge=False)
        for i, title in enumerate(("rank", "backbone", "features", "LogME", "LogME, target", "A-distance")):
            table.add_column(title, justify="left" if i == 1 else "right")
        for one in found:
            shown = (one.logme, one.target_logme, one.a_distance)
            table.add_row(f"{one.rank:g}", printable(one.name), str(one.features), *(f"{value:.3f}" for value in shown))
        console = Console(markup=False, highlight=False)
        (console if console.is_terminal else Console(width=160, markup=False, highlight=False)).print(table)
        if not self.quiet:
            print(f"scored in {sum(one.seconds for one in found):.1f} s, once features were there", file=sys.stderr)
        if self.out is not None:
            rows = [{k: number(v) if isinstance(v, float) else v for k, v in asdict(one).items()} for one in found]
            with output(self.out) as file:
                file.write(as_json(rows))
        return 0
