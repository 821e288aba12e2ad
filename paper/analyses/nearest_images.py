"""Augmented features shown by the real images nearest to them, for any image task."""

from typing import Any

from paper.jobs import Job, Workspace
from paper.protocols import on_this_machine
from paper.results_file import Results, parts
from tsadapt.report.augmented import neighbours_of_run
from tsadapt.runs.fit import train_run

__all__ = ["describe_nearest_images", "nearest_images_of_job"]


def nearest_images_of_job(job: Job, space: Workspace) -> dict[str, Any]:
    """Train the run (or find it) with its memory saved, and draw the neighbours."""
    run, _ = train_run(on_this_machine(job.config), space.run_folder(job.config), quiet=True, keep_memory=True)
    return neighbours_of_run(run, space.pictures)


def describe_nearest_images(results: Results, extra: dict[str, Any]) -> str:
    """The numbers beside the picture, of each run."""
    return "\n\n".join(_text(parts(key).column, run) for key, run in results.items())


def _text(task: str, run: dict[str, Any]) -> str:
    lines = [
        f"{task}. From left to right: a source image, the target image nearest to its feature, the three nearest to its"
        f" augmented feature (a draw at λ = {run['lambda']}), and the source image nearest to that. One row for each"
        " class; images were drawn at random, not chosen. Means over more images, network in evaluation mode:",
        "",
        "| | |",
        "|---|---|",
        *(f"| {what} | {value} |" for what, value in run["numbers"].items()),
    ]
    return "\n".join(lines)
