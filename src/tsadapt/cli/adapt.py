"""tsadapt adapt: the whole job."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tsadapt.cli.fit import Fit
from tsadapt.cli.options import File, Text
from tsadapt.errors import UserError, printable

__all__ = ["Adapt", "show_result"]


@dataclass(frozen=True)
class Adapt(Fit):
    """Adapt a classifier to an unlabelled TARGET: check the data, train a few candidates, choose one without labels.

    OUT gets report.html (open it, send it), predictions.csv, summary.json, and model/ for predict and export. The page
    estimates the accuracy and says which predictions to doubt. The same command resumes a stopped one. Settings of fit
    hold for every candidate; an objective among them (--method, --tsa, …) is one more candidate.

    Example: tsadapt adapt photos/labelled photos/new --out result
    """

    out: File = Path("result")
    """Folder of the result."""
    portfolio: Text = None
    """Candidates: presets, methods and target terms, with commas; METHOD+mi and METHOD+tsa add to a method. Source-only
    is always one of them. (default: source-only,adabn,paper,strong,bsp+mi)"""

    def __call__(self) -> int:
        """Do the job, and say where the result is."""
        settings = self._settings()
        from tsadapt.adapt import PORTFOLIO, adapt

        names = (
            PORTFOLIO
            if self.portfolio is None
            else [name.strip() for name in self.portfolio.split(",") if name.strip()]
        )
        try:
            made = adapt(
                settings.pop("source"), settings.pop("target"), out=self.out or "result", portfolio=names,
                quiet=self.quiet, command=shlex.join(["tsadapt", *sys.argv[1:]]), **settings,
            )  # fmt: skip
        except KeyboardInterrupt as stopped:
            raise KeyboardInterrupt("the same command resumes") from stopped
        show_result(made.summary, made.folder.path)
        return 0

    def _settings(self) -> dict[str, Any]:
        """What was given, by the names that `adapt` has for it."""
        for flag, refused in (("--overwrite", self.overwrite), ("--tensorboard", self.tensorboard),
                            ("--keep-memory", self.keep_memory)):  # fmt: skip
            if refused:
                raise UserError(f"{flag} is for single runs: leave it out, or use tsadapt fit.")
        given = self._file_settings() | self.given()
        found = {"source": self.source, "target": self.target} | {k: v for k, v in given.items() if v is not None}
        if found["source"] is None or found["target"] is None:
            raise UserError("adapt needs a SOURCE and a TARGET, for example: tsadapt adapt photos/labelled photos/new")
        if "-" in (found["source"], found["target"]):
            from tsadapt.data.open import canonical_name

            found |= {role: canonical_name("-") for role in ("source", "target") if found[role] == "-"}
        return found


def show_result(summary: dict[str, Any], folder: Path) -> None:
    """A few lines on a result, and where it is."""
    estimate, chosen = summary["estimated_accuracy"], summary["chosen"]
    print(printable(f"chosen: {chosen['candidate']} ({chosen['why']})"))
    print(
        f"estimated accuracy {estimate['value']:.0%} ({estimate['low']:.0%} to {estimate['high']:.0%}), without labels"
    )
    if (measured := summary["measured_accuracy"]) is not None:
        print(
            f"measured on {measured['rows']} labelled target rows: {measured['value']:.1%}"
            f" ({measured['low']:.1%} to {measured['high']:.1%})"
        )
    if (few := summary["target_labels"]) is not None and few["used_in_training"]:
        print(f"trained on the labels of {few['rows']} target rows, which therefore measure nothing")
    print(f"doubtful predictions: {summary['doubtful']['rows']} of {summary['target']['rows']}")
    for note in summary["notes"]:
        print(printable(f"note: {note}"))
    print(printable(f"open {folder / 'report.html'}"))
