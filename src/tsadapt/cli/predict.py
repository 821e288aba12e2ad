"""tsadapt predict: what a trained run says of data."""

import csv
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import tyro

__all__ = ["Predict"]


@dataclass(frozen=True)
class Predict:
    """Write the predictions of a RUN's model for every row of DATA, as CSV.

    Columns: row (its number, from 0, or its path), class, confidence; with --probabilities one more for each class.
    Example: tsadapt predict runs/digits digits:mnist-5k --out predictions.csv
    """

    run_folder: tyro.conf.Positional[Path]
    """Folder of a finished run."""
    data: tyro.conf.Positional[str]
    """Data, as for fit; labels are not needed. Of a dataset with splits, the test split."""
    out: Path | None = None
    """Where to write; standard output unless given."""
    probabilities: bool = False
    """All probabilities, not only the highest."""
    device: str = "auto"
    """auto, cpu, cuda, …"""

    def run(self) -> int:
        """Predict some rows at a time, and write them as they come."""
        import torch

        from tsadapt.data.open import open_dataset
        from tsadapt.engine.evaluate import ROWS_AT_ONCE, predict_rows
        from tsadapt.engine.runtime import pick_device
        from tsadapt.engine.saved import load_model
        from tsadapt.engine.task import make_ready

        device = pick_device(self.device)
        saved = load_model(self.run_folder, device)
        domain = make_ready(open_dataset(self.data, saved.columns).test, saved.architecture)
        with _output(self.out) as file:
            writer = csv.writer(file, lineterminator="\n")
            extra = [f"p({name})" for name in saved.classes] if self.probabilities else []
            writer.writerow(["row", "class", "confidence", *extra])
            row = 0
            for x in torch.split(domain.x, ROWS_AT_ONCE):
                for p in predict_rows(saved.model, x, device).probabilities:
                    best = int(p.argmax())
                    name = domain.row_names[row] if domain.row_names else row
                    more = [f"{value:.6g}" for value in p] if self.probabilities else []
                    writer.writerow([name, saved.classes[best], f"{p[best]:.6g}", *more])
                    row += 1
        if self.out is not None:
            print(f"{row} predictions written to {self.out}", file=sys.stderr)
        return 0


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears when it is whole."""
    if path is None:
        yield sys.stdout
        return
    from tsadapt.errors import UserError

    half = path.with_name(f".{path.name}.half")
    if path.is_dir():
        raise UserError(f"{path} is a folder, expected a file to write.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = half.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error
    try:
        with file:
            yield file
        os.replace(half, path)
    finally:
        half.unlink(missing_ok=True)
