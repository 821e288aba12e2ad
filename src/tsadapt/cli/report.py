"""tsadapt report: what runs did, as a page to open and to send."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tsadapt.cli.options import File
from tsadapt.cli.output import check_output

__all__ = ["Report"]


@dataclass(frozen=True)
class Report:
    """Make one HTML page of one or more RUNs: predictions to check, class shares, maps, curves, and how to repeat it.

    The page loads nothing from the network. Images are read from where the run found them, and are part of the page;
    without them it has everything else. Several RUNs are compared.

    Example: tsadapt report runs/photos
    """

    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN…", help_behavior_hint="(required)")
    ]
    """Folders of finished runs, or of a sweep: then the run that was chosen there, beside all its candidates."""
    out: File = None
    """File to write. (default: report.html in RUN; with several RUNs, report.html)"""
    use: Literal["last", "selected"] = "last"
    """Which predictions of a run: of its last step, or of the one that validators selected (fit --candidates)."""

    def __call__(self) -> int:
        """Collect, and write the page."""
        from tsadapt.errors import UserError, printable

        if not self.runs:
            raise UserError("report needs runs, for example: tsadapt report runs/photos")
        out = self.out or (self.runs[0] / "report.html" if len(self.runs) == 1 else Path("report.html"))
        check_output(out)
        from tsadapt.report.collect import collect
        from tsadapt.report.html import write_page

        def tell(text: str) -> None:
            print(printable(text), file=sys.stderr, flush=True)

        size = write_page(collect(self.runs, self.use, tell=tell), out)
        print(printable(f"written: {out} ({size / 1e6:.1f} MB)"))
        return 0
