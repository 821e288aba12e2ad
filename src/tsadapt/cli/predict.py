"""tsadapt predict: what a trained run says of data."""

import csv
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tsadapt.cli.options import File, Text
from tsadapt.cli.output import STREAM, output

__all__ = ["Predict"]


@dataclass(frozen=True)
class Predict:
    """Write the predictions of a RUN's model for every row of DATA, as CSV.

    Columns: row (its number, from 0, or its path), class, confidence; with --probabilities one more for each class. For
    images, the last column is error. It says why an image could not be read; such an image has no class. An apostrophe
    stands before text that a spreadsheet would run as a formula.

    Example: tsadapt predict runs/photos photos/new --out predictions.csv
    """

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run, or of a sweep: then the run that was chosen there."""
    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """Data, as for fit; labels are not needed. For a dataset with splits, the test split."""
    out: File = None
    """File to write. (default: -, standard output)"""
    probabilities: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """All probabilities, not only the highest."""
    use: Literal["last", "selected"] = "last"
    """Which model of the run: of its last step, or the one that validators selected (fit --candidates)."""
    adapt_bn: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Normalise the network by DATA first (AdaBN): for a new target that the run was not adapted to."""
    backbone: Text = None
    """Your own encoder again (FILE.py:FUNCTION), if RUN was trained with one: it never imports code by itself."""
    device: Annotated[str, tyro.conf.arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda, …"""

    def __call__(self) -> int:
        """Predict, and write the rows in their order."""
        from tsadapt.errors import counted, printable
        from tsadapt.files import csv_cells
        from tsadapt.runs.model import load

        model = load(self.run_folder, self.use, self.device, quiet=False, backbone=self.backbone)
        domain = model.read(self.data)
        model = model.adapt_bn(domain) if self.adapt_bn else model
        with output(self.out, self.data) as file:  # before the work: a place that cannot be written is known at once
            predicted = model.outputs(domain)
            errors = predicted.unreadable
            writer = csv.writer(file, lineterminator="\n")
            extra = [f"p({name})" for name in model.classes] if self.probabilities else []
            error_column = ["error"] if domain.kind == "file" else []
            writer.writerow(csv_cells(["row", "class", "confidence", *extra, *error_column]))
            rows = (row for block in predicted.probability_blocks() for row in block)
            for row in range(len(domain)):
                name = domain.row_name(row)
                if row in errors:
                    writer.writerow(csv_cells([name, "", "", *("" for _ in extra), errors[row]]))
                    continue
                p = next(rows)
                best = int(p.argmax())
                more = [f"{value:.6g}" for value in p] if self.probabilities else []
                found = [name, model.classes[best], f"{p[best]:.6g}", *more, *("" for _ in error_column)]
                writer.writerow(csv_cells(found))
        if self.out not in (None, STREAM):
            print(printable(f"{len(domain) - len(errors)} predictions written to {self.out}"), file=sys.stderr)
        if errors:
            print(f"{counted(len(errors), 'image')} cannot be read; the CSV says which", file=sys.stderr)
        return 0
