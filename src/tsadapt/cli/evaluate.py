"""tsadapt evaluate: how a trained run does on labelled data."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tsadapt.cli.options import File, Text
from tsadapt.cli.output import check_output, output

__all__ = ["Evaluate"]


@dataclass(frozen=True)
class Evaluate:
    """Judge the model of a RUN on labelled DATA.

    Example: tsadapt evaluate runs/digits digits:mnist-5k --out metrics.json
    """

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run, or of a sweep: then the run that was chosen there."""
    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """Labelled data, as for fit; for a dataset with splits, the test split."""
    out: File = None
    """Where to write all figures as JSON."""
    use: Literal["last", "selected"] = "last"
    """Which model of the run: of its last step, or the one that validators selected (fit --candidates)."""
    adapt_bn: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Normalise the network by DATA first (AdaBN): for a new target that the run was not adapted to."""
    backbone: Text = None
    """Your own encoder again (FILE.py:FUNCTION), if RUN was trained with one: it never imports code by itself."""
    device: Annotated[str, tyro.conf.arg(metavar="NAME")] = "auto"
    """auto, cpu, cuda, …"""

    def __call__(self) -> int:
        """Evaluate, print the accuracies, and write them."""
        import numpy as np

        from tsadapt.cli.fit import show
        from tsadapt.errors import UserError, printable
        from tsadapt.files import as_json
        from tsadapt.runs.evaluate import score
        from tsadapt.runs.model import load

        check_output(self.out, self.data)
        model = load(self.run_folder, self.use, self.device, quiet=False, backbone=self.backbone)
        domain = model.read(self.data)
        if domain.y is None:
            raise UserError(f"{self.data} has no labels to compare with. To get predictions: tsadapt predict.")
        model = model.adapt_bn(domain) if self.adapt_bn else model  # labels stay out of it
        predicted = model.outputs(domain)
        metrics = score(predicted, domain, model.classes)
        if predicted.unreadable:
            print(
                f"{len(predicted.unreadable)} of {len(domain)} images cannot be read and are left out", file=sys.stderr
            )
        show(metrics, "data")
        for name, accuracy in metrics["per_class_accuracy"].items():
            print(f"  {printable(name)}: {accuracy:.1%}")
        if metrics["unknown_classes"]:
            unknown = ", ".join(map(printable, metrics["unknown_classes"]))
            print(f"  counted as errors, classes that the model does not know: {unknown}")
        if self.out is not None:
            metrics["confusion"] = np.asarray(metrics["confusion"]).tolist()
            with output(self.out) as file:
                file.write(as_json(metrics))
        return 0
