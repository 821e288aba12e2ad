"""tsadapt evaluate: how a trained run does on labelled data."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from tsadapt.cli.models import model_at
from tsadapt.cli.options import File, TableOptions, Text
from tsadapt.cli.output import check_output, output

if TYPE_CHECKING:
    from tsadapt.config import RunConfig
    from tsadapt.data.types import Domain
    from tsadapt.export.exported import ExportedModel
    from tsadapt.runs.model import TrainedModel

__all__ = ["Evaluate"]


@dataclass(frozen=True)
class Evaluate(TableOptions):
    """Judge the model of a RUN, or an exported model.onnx, on labelled DATA, or on a few rows that you labelled.

    These are in a CSV with lines name,label. Its names are those of predictions.csv: rows of the target that RUN was
    adapted to, or of --rows.

    Example: tsadapt evaluate runs/digits digits:mnist-5k --out metrics.json
    """

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run, of a sweep or of a result: then the run that was chosen there. Or a model.onnx."""
    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """Labelled data, as for fit (for a dataset with splits, the test split), or a CSV with lines name,label."""
    rows: Text = None
    """For a CSV with lines name,label: the data that it names rows of. (default: RUN's target)"""
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

        check_output(self.out, self.data)
        model: Any = model_at(self.run_folder, self.use, self.device, self.adapt_bn, self.backbone)
        domain = self._domain(model)
        if domain.y is None:
            raise UserError(f"{self.data} has no labels to compare with. To get predictions: tsadapt predict.")
        if (config := _config_of(model)) is not None and config.use_target_labels:
            note = "note: RUN was trained on labels of some target rows: if DATA has these rows, it knows them."
            print(note, file=sys.stderr)
        model = model.adapt_bn(domain) if self.adapt_bn else model  # labels stay out of it
        predicted = model.outputs(domain)
        metrics = score(predicted, domain, model.classes)
        if predicted.unreadable:
            print(
                f"{len(predicted.unreadable)} of {len(domain)} images cannot be read and are left out", file=sys.stderr
            )
        _add_interval(metrics)
        show(metrics, "data")
        interval = metrics["accuracy_interval"]
        print(
            f"95% interval of the accuracy (Wilson): {interval['low']:.1%} to {interval['high']:.1%}; calibration error"
            f" {metrics['calibration_error']:.1%}"
        )
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

    def _domain(self, model: "TrainedModel | ExportedModel") -> "Domain":
        """The labelled rows: those of DATA, or those that a CSV of names and labels names."""
        from tsadapt.data.target_labels import are_names_and_labels
        from tsadapt.errors import UserError

        if not are_names_and_labels(self.data, model.columns):
            if self.rows is not None:
                raise UserError(f"--rows goes with a CSV of names and labels, and {self.data} is none: leave it out.")
            return model.read(self.data, self.roles)
        return _labelled_rows(model, self.data, self._named(model), self.rows is None)

    def _named(self, model: "TrainedModel | ExportedModel") -> Any:
        """The data that a CSV names rows of."""
        if self.rows is not None:
            return self.rows
        config = _config_of(model)
        return None if config is None else config.target


def _config_of(model: "TrainedModel | ExportedModel") -> "RunConfig | None":
    """The config of the run that a model came from, if that is there."""
    from tsadapt.runs.model import TrainedModel

    run = model.run if isinstance(model, TrainedModel) else None
    return None if run is None or not run.exists else run.config


def _labelled_rows(model: "TrainedModel | ExportedModel", path: str, rows: str | None, beside: bool) -> "Domain":
    """The rows that a CSV labels: images at those paths, or rows of other data by their names."""
    from dataclasses import replace

    import torch

    from tsadapt.data.target_labels import labelled_beside, read_target_labels
    from tsadapt.errors import UserError

    images = None if model.columns else labelled_beside(path, model.classes)
    if beside and images is not None:
        return model.read(images)
    if rows is None:
        raise UserError(f"{path} names rows, and the model has no run that says of what: add --rows DATA.")
    domain = model.read(rows)
    labels = read_target_labels(path, domain, model.classes, what="")
    numbers = [row for row, label in enumerate(labels.tolist()) if label >= 0]
    named = replace(domain, y=torch.from_numpy(labels), classes=model.classes).keep(numbers)
    return replace(named, name=path)


def _add_interval(metrics: dict[str, Any]) -> None:
    """Wilson's interval of the accuracy, among the metrics."""
    from tsadapt.trust.interval import wilson

    found = wilson(round(metrics["accuracy"] * metrics["rows"]), metrics["rows"])
    metrics["accuracy_interval"] = {"low": found.low, "high": found.high, "level": 0.95}
