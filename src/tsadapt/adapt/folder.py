"""The folder of a result: what a user opens, and the runs behind it."""

from dataclasses import dataclass
from pathlib import Path

from tsadapt.report.result import SUMMARY, TRUST
from tsadapt.runs.folder import ModelFolder, SweepFolder

__all__ = ["ResultFolder"]


@dataclass(frozen=True)
class ResultFolder:
    """What `adapt` writes. It is a sweep's folder as well: `predict` and `export` take it, and find the chosen run."""

    path: Path

    @property
    def report(self) -> Path:
        """The page."""
        return self.path / "report.html"

    @property
    def predictions(self) -> Path:
        """A class for every target row."""
        return self.path / "predictions.csv"

    @property
    def summary(self) -> Path:
        """The choice, the estimate and the class shares, for programs."""
        return self.path / SUMMARY

    @property
    def trust(self) -> Path:
        """What is known of each target row, for `tsadapt report`."""
        return self.path / TRUST

    @property
    def model(self) -> ModelFolder:
        """The model that was chosen."""
        return ModelFolder(self.path / "model")

    @property
    def sweep(self) -> SweepFolder:
        """The candidates, and why one was chosen."""
        return SweepFolder(self.path)

    @property
    def twins(self) -> SweepFolder:
        """The chosen candidate with another seed, which is no candidate itself."""
        return SweepFolder(self.path / "second-seed")
