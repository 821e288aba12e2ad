"""Figure of augmented features by the real images nearest to them, for any image task."""

from pathlib import Path
from typing import Any

from paper.results_file import Kept
from tsadapt.config import RunConfig
from tsadapt.report.augmented import neighbours_of_run
from tsadapt.runs.fit import fit

__all__ = ["tell_neighbours", "train_and_find_neighbours"]


def train_and_find_neighbours(config: RunConfig, work: Path, beside: Path, quick: bool) -> dict[str, Any]:
    """Train the run (or find it in `work`) with its memory kept, and look for the neighbours."""
    run, _ = fit(config, work / "runs" / config.hash(), quiet=True, keep_memory=True)
    return neighbours_of_run(run, beside)


def tell_neighbours(kept: Kept) -> str:
    """The numbers beside the picture, of each run."""
    return "\n\n".join(_told(key, run) for key, run in kept.items())


def _told(key: str, run: dict[str, Any]) -> str:
    lines = [
        f"{key.split(' | ')[1]}. Rows by class: a source image, the target image nearest to its feature, the three"
        f" nearest to its augmented feature (a draw at λ = {run['lambda']}), and the source image nearest to that."
        " Images were drawn at random, not chosen; the numbers are means over more of them, in evaluation mode.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {what} | {value} |" for what, value in run["numbers"].items()),
    ]
    return "\n".join(lines)
