"""What the augmentation does during training: how many pseudo-labels are right, and what TSA adds to the logits.

The share of right pseudo-labels is an oracle diagnostic: it compares the memory with target labels, after a step and
outside training.
"""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from paper.analyses.section import Section
from paper.protocols import Protocol
from paper.published import Published
from paper.results_file import Key, Results, parts
from paper.rows import TITLES, Row
from tsadapt.config import RunConfig
from tsadapt.core import FeatureMemory
from tsadapt.data.open import open_dataset
from tsadapt.data.types import match_labels
from tsadapt.runs.folder import RunFolder
from tsadapt.runs.records import read_records
from tsadapt.training.trainer import Trainer

__all__ = ["augmentation_of_run", "augmentation_table", "watch_pseudo_labels"]

FILE = "oracle_pseudo_labels.jsonl"
RECORDED = (
    "shift_norm", "class_spread", "shift_term", "variance_term", "logit_size", "discriminator_accuracy",
    "gradient_share",
)  # fmt: skip
SHARES = (0.1, 0.25, 0.5, 1.0)
WITHOUT = "+TSA without MI"


def watch_pseudo_labels(config: RunConfig, folder: Path) -> Callable[[Trainer], None]:
    """After every logged step, append the share of the memory's target labels that are right to a file of the run."""
    domain, source = open_dataset(config.target).train, open_dataset(config.source).train
    assert source.classes is not None
    truth: torch.Tensor = match_labels(domain, source.classes)[0]

    def watch(trainer: Trainer) -> None:
        memory = trainer.statistics.find("target", "memory", 0)
        if isinstance(memory, FeatureMemory):
            right = float((memory.labels == truth).double().mean())
            with (folder / FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": trainer.at, "right": round(right, 4)}) + "\n")

    return watch


def augmentation_of_run(run: Path) -> dict[str, Any]:
    """Diagnostics of the last logged step, and the pseudo-labels over time as pairs of step and share."""
    last = read_records(RunFolder(run).records_file)[-1]
    lines = read_records(run / FILE) if (run / FILE).exists() else []
    by_step = {line["step"]: line["right"] for line in lines}  # a step that was resumed is there twice
    return {
        "last_record": {name: last[name] for name in RECORDED if name in last},
        "oracle_pseudo_label_accuracy": [[step, by_step[step]] for step in sorted(by_step)],
    }


def augmentation_table(
    protocol: Protocol, rows: list[Row], columns: list[str], results: Results, before: dict[str, Any],
    may_measure: bool, paper: Published | None,
) -> Section:  # fmt: skip
    """For each task and base method: pseudo-labels over time, Δμ, and TSA's terms beside the logits; means of seeds."""
    has_without = any(row.title.endswith(WITHOUT) for row in rows)
    head = [
        "right pseudo-labels after 10, 25, 50 and 100 % of the steps, % (oracle)",
        *["the same without MI, % (oracle)"] * has_without,
        "‖Δμ‖ / class spread",
        "shift term",
        "variance term",
        "logits",
    ]
    lines = [
        "What TSA does in the +TSA runs. The shift and variance terms are what it adds to a logit on average, at the"
        " last logged step. Target labels judge the pseudo-labels from outside training (oracle).",
        "",
        f"| | {' | '.join(head)} |",
        "|---|" + "---|" * len(head),
    ]
    seeds = sorted({parts(key).seed for key in results})
    for column in columns:
        for title in TITLES.values():
            with_mi, without = (
                [run for seed in seeds if (run := results.get(str(Key(f"{title} {what}", column, seed))))]
                for what in ("+TSA", WITHOUT)
            )
            if with_mi:
                norm, spread, *terms = (
                    statistics.mean(run["last_record"][name] for run in with_mi) for name in RECORDED[:5]
                )
                numbers = [f"{norm / spread:.2f}", *(f"{term:.2f}" for term in terms)]
                cells = [_over_time(with_mi), *[_over_time(without)] * has_without, *numbers]
                lines.append(f"| {column}, {title} | {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 4 else "", before, {}


def _over_time(runs: list[dict[str, Any]]) -> str:
    """The share of right pseudo-labels at some shares of the steps, mean over runs."""
    curves = [run["oracle_pseudo_label_accuracy"] for run in runs if run["oracle_pseudo_label_accuracy"]]
    if not curves:
        return "–"
    means = [
        statistics.mean(min(curve, key=lambda point: abs(point[0] - share * curve[-1][0]))[1] for curve in curves)
        for share in SHARES
    ]
    return " → ".join(f"{100 * mean:.0f}" for mean in means)
