"""Why adversarial methods need the domains normalised apart: what batch normalisation does in training and afterwards.

A trained network is judged three times: with the running averages that training left, and with its batch normalisation
replaced by that of the target and of the source. If the running averages were at fault, the target's would mend it.
"""

from pathlib import Path
from statistics import mean
from typing import Any

from paper.analyses.section import Section
from paper.protocols import Protocol, our_encoder
from paper.published import Published
from paper.results_file import Results, parts
from paper.rows import Row
from tsadapt.data.open import open_dataset
from tsadapt.data.types import Domain
from tsadapt.runs.evaluate import score
from tsadapt.runs.folder import RunFolder
from tsadapt.runs.model import load
from tsadapt.runs.records import read_records

__all__ = ["normalised_accuracies", "normalised_table"]


def normalised_accuracies(folder: Path) -> dict[str, Any]:
    """Target accuracy, %, normalised by the target and by the source; the discriminator's accuracy over the run."""
    run = RunFolder(folder)
    model = load(folder, backbone=our_encoder(run.config))
    source, target = open_dataset(run.config.source).train, open_dataset(run.config.target).test

    def accuracy(by: Domain) -> float:
        predicted = model.adapt_bn(by.unlabelled()).outputs(target.unlabelled())
        return round(100 * float(score(predicted, target, model.classes)["accuracy"]), 2)

    told = [100 * record["discriminator_accuracy"] for record in read_records(run.records_file)]
    last = told[len(told) // 2 :]
    return {"by_target": accuracy(target), "by_source": accuracy(source), "discriminator": round(mean(last), 2)}


def normalised_table(
    protocol: Protocol, rows: list[Row], columns: list[str], results: Results, before: dict[str, Any], measure: bool,
    paper: Published | None,
) -> Section:  # fmt: skip
    """Means over the tasks and seeds of every row."""
    lines = ["| | running averages | the target's | the source's | discriminator |", "|---|---|---|---|---|"]
    for row in rows:
        runs = [run for key, run in results.items() if parts(key).row == row.title]
        if runs and not row.columns:
            values = (
                mean(run[name] for run in runs) for name in ("accuracy", "by_target", "by_source", "discriminator")
            )
            lines.append(f"| {row.title} | " + " | ".join(f"{value:.1f}" for value in values) + " |")
    text = (
        "What evaluation has to do with it: target accuracy, %, means over the tasks and seeds above, with the running"
        " averages as training left them, and with the batch normalisation of one domain instead. Last column: how"
        " often the discriminator tells the domain of a training row, %, over the second half of training."
    )
    return "\n".join([text, "", *lines]), before, {}
