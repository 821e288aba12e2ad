"""tsadapt augmented: what augmented features look like."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tsadapt.cli.options import Number, Whole
from tsadapt.errors import UserError

__all__ = ["Augmented"]


@dataclass(frozen=True)
class Augmented:
    """What the augmented features of a RUN look like: the real images nearest to them, as a picture.

    RUN was trained on images with --tsa --keep-memory (without, its last checkpoint will do while it is there). With
    --generator, images are drawn for them as well, by a WGAN-GP of the source and the paper's reverse mapping; that is
    for small images such as digits, and takes an hour.
    Example: tsadapt augmented runs/photos --out augmented
    """

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    out: Path = Path("augmented")
    """Where the pictures go: OUT/neighbours.png, OUT/augmented.png and OUT/augmented-strip.png."""
    strength: Number = None
    """λ of the neighbours' picture, from 0 to 1 (the run's λ0)."""
    generator: bool = False
    """Draw images by a generator too."""
    generator_steps: Whole = None
    """Steps of the generator (2,000)."""

    def run(self) -> int:
        """Make the pictures, and print the numbers beside them."""
        from dataclasses import replace

        from tsadapt.recipes.augmented import STANDARD, augmented_images_of_run, check_small_images
        from tsadapt.recipes.neighbours import neighbours_of_run
        from tsadapt.recipes.scene import scene_of_run

        if self.strength is not None and not 0 <= self.strength <= 1:
            raise UserError(f"--strength is {self.strength}, expected a number from 0 to 1.")
        if self.out.exists() and not self.out.is_dir():
            raise UserError(f"--out {self.out} is a file, expected a folder.")
        if self.generator_steps is not None and not self.generator:
            raise UserError("--generator-steps is for --generator: give both.")
        if self.generator_steps is not None and self.generator_steps < 1:
            raise UserError(f"--generator-steps is {self.generator_steps}, expected 1 or more.")
        scene = scene_of_run(self.run_folder)
        if self.generator:
            check_small_images(scene)
        self.out.mkdir(parents=True, exist_ok=True)
        found = neighbours_of_run(scene, self.out / "neighbours", self.strength)
        print("means over source images drawn at random, of which the picture shows one a class:")
        for what, value in found["numbers"].items():
            print(f"  {what}: {value}")
        print(f"written: {self.out / 'neighbours.png'}")
        if self.generator:
            settings = replace(STANDARD, gan=replace(STANDARD.gan, steps=self.generator_steps or STANDARD.gan.steps))
            made = augmented_images_of_run(scene, self.out / "generators", self.out / "augmented", settings)
            for what, value in made["numbers"].items():
                print(f"  {what}: {value}")
            print(f"written: {self.out / 'augmented.png'}, {self.out / 'augmented-strip.png'}")
        return 0
