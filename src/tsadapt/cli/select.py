"""tsadapt select: which of several trained runs to trust."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from tsadapt.cli.options import File

__all__ = ["Select"]


@dataclass(frozen=True)
class Select:
    """Choose among trained RUNs (or all runs of a sweep's folder) without target labels.

    Runs of one task are compared, at each of their candidate steps. If a source-only run is among them, it is
    kept when the validators rank it higher.

    Example: tsadapt select runs/a runs/b runs/source-only --by consensus
    """

    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN…", help_behavior_hint="(required)")
    ]
    """Folders of finished runs, or of a sweep."""
    by: Annotated[str, tyro.conf.arg(metavar="NAME")] = "consensus"
    """Validator to choose by (tsadapt list validators)."""
    no_guard: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Do not exclude collapsed candidates."""
    out: File = None
    """Folder for choice.json and scores.csv. By default nothing is written."""

    def __call__(self) -> int:
        """Score the runs, print the table, and write what was decided."""
        from tsadapt.errors import UserError, printable
        from tsadapt.report.selection import print_choice
        from tsadapt.runs.folder import SweepFolder
        from tsadapt.selection.select import check_selector, choose
        from tsadapt.sweep.choice import read_candidates, reference_among, setting_of, varying, write_choice

        if not self.runs:
            raise UserError("select needs runs, for example: tsadapt select runs/a runs/b --by consensus")
        check_selector(self.by)
        candidates = read_candidates(self.runs, partial(print, file=sys.stderr))
        pool = [candidate.predictions for candidate in candidates]
        choice = choose(pool, self.by, reference_among(candidates), guard=not self.no_guard)
        print_choice(candidates, choice, folders=True)
        if self.out is not None:
            config = candidates[choice.chosen].config
            write_choice(
                self.out, candidates, choice, {name: setting_of(config, name) for name in varying(candidates)}, {}
            )
            written = SweepFolder(self.out)
            print(printable(f"written: {written.choice_file}, {written.scores_file}"))
        return 0
