"""tsadapt augmented: what augmented features look like."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tsadapt.cli.options import FRACTION, MaybeNumber, Text
from tsadapt.errors import UserError

__all__ = ["Augmented"]


@dataclass(frozen=True)
class Augmented:
    """What the augmented features of a RUN look like: the real images nearest to them, as a picture.

    RUN was trained on images with --tsa --keep-memory. Without it, the last checkpoint is used if it still
    exists.

    Example: tsadapt augmented runs/photos --out augmented
    """

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    out: Path = Path("augmented")
    """Where the pictures go: OUT/neighbours.png."""
    backbone: Text = None
    """Your own encoder again (FILE.py:FUNCTION), if RUN was trained with one: it never imports code by itself."""
    strength: Annotated[MaybeNumber, FRACTION, tyro.conf.arg(help_behavior_hint="(default: the run's λ0)")] = None
    """λ used for the picture, from 0 to 1."""

    def __call__(self) -> int:
        """Make the pictures, and print the numbers beside them."""
        from tsadapt.report.augmented import augmented_run, neighbours_of_run

        if self.strength is not None and not 0 <= self.strength <= 1:
            raise UserError(f"--strength is {self.strength}, expected a number from 0 to 1.")
        if self.out.exists() and not self.out.is_dir():
            raise UserError(f"--out {self.out} is a file, expected a folder.")
        run = augmented_run(self.run_folder, self.backbone)
        found = neighbours_of_run(run, self.out / "neighbours", self.strength)
        print("means over source images drawn at random, of which the picture shows one a class:")
        for what, value in found["numbers"].items():
            print(f"  {what}: {value}")
        print(f"written: {self.out / 'neighbours.png'}")
        return 0
