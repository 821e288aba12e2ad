"""python -m paper: the paper's tables and figures, and our studies."""

import os
import sys
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Protocol

import tyro

from tsadapt.cli.options import FRACTION, WHOLE, MaybeNumber, MaybeText, MaybeWhole, Text, Whole, WholeNumber
from tsadapt.errors import UserError

__all__ = ["main"]

USAGE = """\
python -m paper makes the paper's tables and figures, and our studies: it trains what is missing, and sets our numbers
beside the published ones.

usage: python -m paper NAME ...

{names}
  {augmented:<19} images of a RUN's augmented features, drawn by a generator

examples:
  python -m paper --list
  python -m paper table4 --quick
  python -m paper table5 --on office-caltech --jobs 2

python -m paper NAME --help says more.
"""


class _Command(Protocol):
    def run(self) -> int:
        """Do it; the exit status."""


@dataclass(frozen=True)
class Reproduce:
    """Run (or resume) what is behind a table, figure or study, and set our numbers beside the published ones.

    OUT gets NAME.json, NAME.md and NAME.png; runs that are in NAME.json are not run again.

    Example: python -m paper table5 --on office-caltech --jobs 2
    """

    name: Annotated[tyro.conf.Positional[MaybeText], tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """The table, figure or study; python -m paper lists them."""
    list: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Show what can run with the data at hand, and about how long each takes."""
    on: Text = None
    """Data other than the recipe's own: office31-features, office-caltech or pacs (features), office31-layer4 (the last
    stage of a ResNet-50 trained), office-caltech-images (photographs), digits (MNIST, USPS, SVHN), digits-small (digits
    included in the packages), office31, office-home or visda."""
    frozen: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """For the ResNet tables: train on features of the frozen backbone, a separate protocol."""
    weights: Annotated[MaybeText, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: downloaded)")] = None
    """Backbone weights, for photographs: a .safetensors or .pth file, or none for random ones."""
    quick: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """A first look, in OUT/quick: digits-small (digits included in the packages), few steps, one task, one seed. Its
    numbers mean nothing."""
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(metavar="N…", help_behavior_hint="(default: all)")] = ()
    """Only these seeds."""
    rows: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TITLE…", help_behavior_hint="(default: all)")] = ()
    """Only these rows, by their titles on the page, such as "dann +tsa"."""
    columns: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TITLE…", help_behavior_hint="(default: all)")] = ()
    """Only these tasks, by their titles on the page, such as "m->u"."""
    steps: Whole = None
    """Override the recipe's number of steps; results go to separate files."""
    jobs: WholeNumber = 1
    """Runs side by side."""
    only_collect: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Train nothing: make the page from stored results."""
    out: Path = Path("runs/reproduce")
    """Where results go; the runs themselves are in OUT/work."""

    def run(self) -> int:
        """Reproduce, and print the page."""
        if self.list:
            from paper.listing import status_lines

            print("\n".join(status_lines(self.name)))
            return 0
        if self.name is None:
            raise UserError("expected the name of a table, figure or study; python -m paper lists them.")
        _positive(("--jobs", self.jobs), ("--steps", self.steps))
        _writable(self.out)
        from paper.reproduce import reproduce
        from paper.request import Request
        from tsadapt.runs.fit import Interrupted

        request = Request(
            self.name, self.on, self.frozen, self.weights, self.seeds, self.rows, self.columns, self.steps, self.quick,
            self.jobs, self.only_collect,
        )  # fmt: skip
        try:
            written = reproduce(request, self.out)
        except (Interrupted, KeyboardInterrupt) as stopped:
            raise KeyboardInterrupt("the same command continues from here") from stopped
        print(written[-1].read_text(encoding="utf-8"))
        print(f"written: {', '.join(map(str, written))}", file=sys.stderr)
        return 0


@dataclass(frozen=True)
class Augmented:
    """Draw images of the augmented features of a RUN, by a WGAN-GP of the source and the paper's reverse mapping.

    RUN was trained on small images such as digits with --tsa --keep-memory (or still has its last checkpoint). Takes
    about an hour. `tsadapt augmented` shows the nearest real images instead, in seconds.

    Example: python -m paper augmented runs/digits --out augmented
    """

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    out: Path = Path("augmented")
    """Where the pictures go: OUT/augmented.png and OUT/augmented-strip.png."""
    generator_steps: Annotated[MaybeWhole, WHOLE, tyro.conf.arg(help_behavior_hint="(default: 2000)")] = None
    """Steps of the generator."""
    strength: Annotated[MaybeNumber, FRACTION, tyro.conf.arg(help_behavior_hint="(default: the run's λ0)")] = None
    """λ of the augmented features, from 0 to 1."""

    def run(self) -> int:
        """Make the pictures, and print the numbers beside them."""
        from dataclasses import replace

        from paper.analyses import augmented_images
        from tsadapt.report.augmented import augmented_run

        if self.strength is not None and not 0 <= self.strength <= 1:
            raise UserError(f"--strength is {self.strength}, expected a number from 0 to 1.")
        _positive(("--generator-steps", self.generator_steps))
        _writable(self.out)
        augmented = augmented_run(self.run_folder)
        augmented_images.check_small_images(augmented)
        settings = augmented_images.STANDARD
        if self.generator_steps is not None:
            settings = replace(settings, gan=replace(settings.gan, steps=self.generator_steps))
        self.out.mkdir(parents=True, exist_ok=True)
        made = augmented_images.augmented_images_of_run(
            augmented, self.out / "generators", self.out / "augmented", settings, self.strength
        )
        print("means over source images drawn at random:")
        for what, value in made["numbers"].items():
            print(f"  {what}: {value}")
        print(f"written: {self.out / 'augmented.png'}, {self.out / 'augmented-strip.png'}")
        return 0


def _positive(*numbers: tuple[str, int | None]) -> None:
    for flag, value in numbers:
        if value is not None and value < 1:
            raise UserError(f"{flag} is {value}, expected 1 or more.")


def _writable(out: Path) -> None:
    """Refuse a folder that cannot be written before hours are spent."""
    if any(part.is_file() for part in (out, *out.parents)):
        raise UserError(f"--out {out} is or lies in a file, expected a folder.")
    there = next(part for part in (out, *out.absolute().parents) if part.is_dir())
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"--out {out} cannot be written: choose another folder, or change its permissions.")


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if not arguments:
            from paper.catalogue import RECIPES
            from paper.protocols import PROTOCOLS

            titles = {name: PROTOCOLS[recipe.home].title for name, recipe in RECIPES.items()}
            names = "\n".join(f"  {name:<19} {recipe.what} ({titles[name]})" for name, recipe in RECIPES.items())
            print(USAGE.format(names=names, augmented="augmented RUN"), end="")
            return 0
        if arguments[0] == "augmented":
            return _parse(Augmented, "python -m paper augmented", arguments[1:]).run()
        return _parse(Reproduce, "python -m paper", arguments).run()
    except UserError as error:
        print(f"paper: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has had enough
        sys.stderr.close()
        return 1
    except OSError as error:  # a full disk, a folder that cannot be written
        print(f"paper: {error.strerror or error}: {error.filename or ''}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"paper: interrupted{f'; {stop}' if str(stop) else ''}", file=sys.stderr)
        return 130


def _parse(kind: type[Reproduce] | type[Augmented], program: str, words: list[str]) -> _Command:
    return tyro.cli(
        kind,
        args=words,
        prog=program,
        description=cleandoc(kind.__doc__ or ""),
        config=(tyro.conf.FlagCreatePairsOff,),
    )


if __name__ == "__main__":
    sys.exit(main())
