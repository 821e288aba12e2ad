"""tsadapt evaluate: how a trained run does on labelled data."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

__all__ = ["Evaluate"]


@dataclass(frozen=True)
class Evaluate:
    """Judge the model of a RUN on labelled DATA.

    Example: tsadapt evaluate runs/digits digits:mnist-5k --out metrics.json
    """

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run, or of a sweep: then the run that was chosen there."""
    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """Labelled data, as for fit; of a dataset with splits, the test split."""
    out: Path | None = None
    """Where to write all figures as JSON."""
    use: Literal["last", "selected"] = "last"
    """Which model of the run: of its last step, or the one that validators selected (fit --candidates)."""
    device: str = "auto"
    """auto, cpu, cuda, …"""

    def run(self) -> int:
        """Evaluate, print the accuracies, and write them."""
        from tsadapt.cli.fit import show
        from tsadapt.data.open import open_dataset
        from tsadapt.errors import UserError
        from tsadapt.files import write_json
        from tsadapt.models.preprocessing import Reader
        from tsadapt.runs.evaluate import predict_rows, score
        from tsadapt.runs.model import load_model
        from tsadapt.training.runtime import pick_device

        device = pick_device(self.device)
        saved = load_model(self.run_folder, device, self.use)
        domain = open_dataset(self.data, saved.columns).test
        if domain.y is None:
            raise UserError(f"{self.data} has no labels to compare with. To get predictions: tsadapt predict.")
        ready = Reader(saved.architecture, saved.eyes, device)(domain)
        predictions = predict_rows(saved.model, ready.domain, device, saved.eyes, quiet=False)
        said = score(predictions, ready.domain, saved.classes)
        unreadable = len(ready.unreadable) + len(predictions.unreadable)
        if unreadable:
            print(f"{unreadable} of {len(domain)} images cannot be read and are left out", file=sys.stderr)
        show(said, "data")
        for name, accuracy in said["per_class_accuracy"].items():
            print(f"  {name}: {accuracy:.1%}")
        if said["unknown_classes"]:
            print(f"  counted as errors, the model does not know them: {', '.join(said['unknown_classes'])}")
        if self.out is not None:
            write_json(self.out, said)
        return 0
