"""tsadapt predict: what a trained run says of data."""

import csv
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from tsadapt.cli.models import model_at
from tsadapt.cli.options import File, TableOptions, Text
from tsadapt.cli.output import STREAM, check_output, output
from tsadapt.errors import UserError

__all__ = ["Predict"]


@dataclass(frozen=True)
class Predict(TableOptions):
    """Write the predictions of a RUN's model, or of a model.onnx that export wrote, for every row of DATA, as CSV.

    Columns: row (its number, from 0, its path, or the id column), class, confidence; with --probabilities one more for
    each class. For images, the last column is error. It says why an image could not be read; such an image has no
    class. An apostrophe stands before text that a spreadsheet would run as a formula.

    Example: tsadapt predict runs/photos photos/new --out predictions.csv
    """

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run, of a sweep or of a result: then the run that was chosen there. Or a model.onnx."""
    data: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="DATA…", help_behavior_hint="(required)")
    ]
    """Data, as for fit, one or several images, or - for paths on standard input. Labels are not needed."""
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

        if not self.data:
            raise UserError("predict needs a RUN and DATA, for example: tsadapt predict runs/photos photos/new")
        data = self.data[0] if len(self.data) == 1 else _images(self.data)
        for name in self.data:
            check_output(self.out, name)
        model: Any = model_at(self.run_folder, self.use, self.device, self.adapt_bn, self.backbone)
        domain = model.read(data, self.roles)
        if self.id_column is not None and domain.id_column is None:
            raise UserError(
                f"--id-column {self.id_column} names a column, and {domain.name} has none: its rows have names of their"
                f" own, such as {domain.row_name(0)}. Leave it out."
            )
        if domain.split != "all":
            print(
                printable(f"note: of {domain.name}, the {domain.split} split is predicted ({len(domain)} rows)."),
                file=sys.stderr,
            )
        model = model.adapt_bn(domain) if self.adapt_bn else model
        with output(self.out) as file:  # before the work: a place that cannot be written is known at once
            predicted = model.outputs(domain)
            errors = predicted.unreadable
            writer = csv.writer(file, lineterminator="\n")
            extra = [f"p({name})" for name in model.classes] if self.probabilities else []
            error_column = ["error"] if domain.kind == "file" else []
            writer.writerow(csv_cells([domain.id_column or "row", "class", "confidence", *extra, *error_column]))
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


def _images(paths: tuple[str, ...]) -> list[str]:
    """Several images, such as a shell makes of photos/*.jpg; other data comes alone."""
    from tsadapt.data.folders import is_image

    if others := [path for path in paths if not is_image(path)]:
        raise UserError(
            f"predict takes one DATA, or several images, and received {len(paths)} names, among them {others[0]!r}. A"
            ' pattern for other files needs quotes: "shards/*.tar".'
        )
    return [*paths]
