"""The paper's base methods, each plain, +MI, +TSA and +TSA without MI, on four tasks and three seeds.

    python -m paper.studies.base_methods                    run what is missing, then make the tables
    python -m paper.studies.base_methods --share 1/2        every second run, for two processes side by side
    python -m paper.studies.base_methods --table            only make the tables of what is there

PACS features are read from TSADAPT_DATA. Every run that ends is a file under paper/results/base-methods/runs and
is never done again; one that was stopped goes on from its checkpoint under runs/. Accuracies are of the last step.

The share of right pseudo-labels is an oracle diagnostic: it looks at target labels, after a step and outside training.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tsadapt.config import RunConfig
from tsadapt.core import FeatureMemory
from tsadapt.data.open import open_dataset
from tsadapt.data.types import match_labels
from tsadapt.files import write_atomically, write_json
from tsadapt.objectives.source_terms.transferable import Transferable
from tsadapt.report.tables import fill
from tsadapt.runs.fit import fit
from tsadapt.runs.records import read_records
from tsadapt.training.trainer import Training

COMMAND = "python -m paper.studies.base_methods"
RESULTS = Path("paper/results/base-methods")
METHODS = {"source-only": "source-only", "dann": "DANN", "cdan+e": "CDAN+E", "bsp": "BSP", "jada": "JADA"}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("plain", {}),
    # What sharing batch normalisation with the target does by itself: the fair base of TSA without MI.
    "shared-bn": ("with the target forwarded", {"mi": True, "term_weight": ("mi=0",)}),
    "mi": ("+MI", {"mi": True}),
    "tsa": ("+TSA", {"mi": True, "source_term": "tsa"}),
    "tsa-no-mi": ("+TSA without MI", {"source_term": "tsa"}),
    # Why BSP +TSA falls below BSP on these digits: it does not with less of MI.
    "tsa-beta-0.01": ("+TSA, β = 0.01 instead of 0.1", {"mi": True, "source_term": "tsa", "beta": 0.01}),
}
ONLY = {"shared-bn": ("source-only", None), "tsa-beta-0.01": ("bsp", "UCI → MNIST-5k")}
"""Variants of one method, or of one method on one task."""
SEEDS = (0, 1, 2)


def pacs(domain: str) -> str:
    return str(Path(os.environ.get("TSADAPT_DATA", "")) / "features" / f"pacs_{domain}.npz")


TASKS = {
    "UCI → MNIST-5k": ("digits:uci", "digits:mnist-5k"),
    "MNIST-5k → UCI": ("digits:mnist-5k", "digits:uci"),
    "PACS photo → cartoon": (pacs("photo"), pacs("cartoon")),
    "PACS cartoon → art": (pacs("cartoon"), pacs("art_painting")),
}


@dataclass(frozen=True)
class Job:
    """One run of the table."""

    task: str
    method: str
    variant: str
    seed: int

    @property
    def key(self) -> str:
        """The name of its files."""
        task = "-".join(word for word in self.task.lower().split() if word != "→")
        return f"{task}.{self.method}.{self.variant}.{self.seed}"

    def config(self) -> RunConfig:
        """The run; every setting not named here is the default for the data."""
        source, target = TASKS[self.task]
        base = RunConfig(source, target, method=self.method, seed=self.seed, device="cpu")
        return replace(base, **VARIANTS[self.variant][1])


def variants(method: str, task: str | None = None) -> list[str]:
    """The variants of a method (on a task)."""
    allowed = {v: ONLY.get(v, (method, None)) for v in VARIANTS}
    return [v for v, (only, where) in allowed.items() if only == method and task in (None, where or task)]


def jobs() -> Iterator[Job]:
    """All of them, seed by seed, so that a table of one seed is there early."""
    for seed in SEEDS:
        for task in TASKS:
            for method in METHODS:
                for variant in variants(method, task):
                    yield Job(task, method, variant, seed)


class OraclePseudoLabels:
    """Watches a training from outside: the share of the memory's target labels that are right, at every logged step."""

    def __init__(self, target: str, path: Path) -> None:
        self.domain, self.path = open_dataset(target).train, path
        self.truth: torch.Tensor | None = None

    def __call__(self, training: Training) -> None:
        """Append one line."""
        term = training.source_term
        if not isinstance(term, Transferable) or not isinstance(term.target[0], FeatureMemory):
            return
        if self.truth is None:
            source = open_dataset(training.config.source).train
            assert source.classes is not None
            self.truth = match_labels(self.domain, source.classes)[0]
        right = float((term.target[0].labels == self.truth).double().mean())
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": training.at, "oracle_pseudo_label_accuracy": round(right, 4)}) + "\n")


def do(job: Job) -> None:
    """Run a job, and write what is to be kept of it."""
    out, config = Path("runs/base-methods") / job.key, job.config()
    began = time.monotonic()
    watching = OraclePseudoLabels(config.target, Path("runs/base-methods") / f"{job.key}.oracle.jsonl")
    _, metrics = fit(config, out, quiet=True, watch=watching)
    last, records = metrics["last"], read_records(out / "records.jsonl")
    kept = ("shift_norm", "class_spread", "shift_term", "variance_term", "logit_size", "discriminator_accuracy")
    result = {
        **vars(job),
        "hash": metrics["hash"],
        "target_accuracy": round(100 * last["target"]["accuracy"], 2),
        "target_mean_class_accuracy": round(100 * last["target"]["mean_class_accuracy"], 2),
        "source_accuracy": round(100 * last["source"]["accuracy"], 2),
        "proxy_a_distance": last["proxy_a_distance"],
        "seconds": round(time.monotonic() - began, 1),
        "last_record": {key: records[-1][key] for key in (*kept, "gradient_share") if key in records[-1]},
        "oracle_pseudo_label_accuracy": [
            [line["step"], line["oracle_pseudo_label_accuracy"]] for line in read_records(watching.path)
        ],
    }
    write_json(RESULTS / "runs" / f"{job.key}.json", result)
    print(f"{job.key}: {result['target_accuracy']} ({result['seconds']} s)", flush=True)


def read_results() -> dict[str, dict[str, Any]]:
    """What was measured so far, by key."""
    return {
        path.name.removesuffix(".json"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((RESULTS / "runs").glob("*.json"))
    }


def table(results: dict[str, dict[str, Any]], field: str = "target_accuracy") -> str:
    """Mean ± deviation over the seeds, a row for each method and variant, as Markdown."""
    lines = ["| | " + " | ".join(TASKS) + " | mean |", "|---|" + "---|" * (len(TASKS) + 1)]
    for method, title in METHODS.items():
        for variant in variants(method):
            suffix = VARIANTS[variant][0]
            cells, means = [], []
            for task in TASKS:
                found = [results.get(Job(task, method, variant, seed).key) for seed in SEEDS]
                values = [result[field] for result in found if result is not None and result.get(field) is not None]
                if not values:
                    cells.append("–")
                    continue
                means.append(statistics.mean(values))
                spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
                missing = "" if len(values) == len(SEEDS) else f" ({len(values)} of {len(SEEDS)})"
                cells.append(f"{means[-1]:.1f}{spread}{missing}")
            mean = f"{statistics.mean(means):.1f}" if len(means) == len(TASKS) else "–"
            lines.append(
                f"| {title if variant == 'plain' else title + ' ' + suffix} | " + " | ".join([*cells, mean]) + " |"
            )
    return "\n".join(lines)


def diagnostics(results: dict[str, dict[str, Any]]) -> str:
    """What the augmentation does, in the runs with TSA and MI: pseudo-labels (oracle), Δμ, the terms beside logits."""
    head = (
        "pseudo-labels right after 10, 25, 50 and 100 % of the steps (oracle)",
        "the same without MI (oracle)",
        "‖Δμ‖ / class spread",
        "shift term",
        "variance term",
        "logits",
    )
    lines = ["| | " + " | ".join(head) + " |", "|---|" + "---|" * len(head)]
    for task in TASKS:
        for method, title in METHODS.items():
            found = [results.get(Job(task, method, "tsa", seed).key) for seed in SEEDS]
            runs = [run for run in found if run is not None and run["oracle_pseudo_label_accuracy"]]
            if not runs:
                continue

            def mean(name: str, runs: list[dict[str, Any]] = runs) -> float:
                return float(statistics.mean(run["last_record"].get(name, float("nan")) for run in runs))

            without = [results.get(Job(task, method, "tsa-no-mi", seed).key) for seed in SEEDS]
            cells = [over_time(runs), over_time([run for run in without if run is not None])]
            cells.append(f"{mean('shift_norm') / mean('class_spread'):.2f}")
            cells += [f"{mean(name):.2f}" for name in ("shift_term", "variance_term", "logit_size")]
            lines.append(f"| {task}, {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def over_time(runs: list[dict[str, Any]]) -> str:
    """The share of right pseudo-labels on the way, mean over runs."""
    if not runs:
        return "–"
    values = []
    for share in (0.1, 0.25, 0.5, 1.0):
        found = []
        for run in runs:
            lines = run["oracle_pseudo_label_accuracy"]
            wanted = share * lines[-1][0]
            found.append(min(lines, key=lambda line: abs(line[0] - wanted))[1])
        values.append(f"{100 * statistics.mean(found):.0f}")
    return " → ".join(values)


def page(results: dict[str, dict[str, Any]]) -> str:
    """The tables of all results, as Markdown."""
    text = [
        "Made by `python -m paper.studies.base_methods`: target accuracy, %, last step, mean ± deviation of three seeds.",
        "",
        table(results),
        "",
        "What the augmentation does at the last logged step of the +TSA runs. Pseudo-labels are judged by target labels"
        " from outside training (an oracle diagnostic); the shift and variance terms are what TSA adds to a logit, on"
        " average.",
        "",
        diagnostics(results),
        "",
    ]
    return "\n".join(text)


def write_tables() -> None:
    """Write the page of what is there."""
    results = read_results()
    write_atomically(RESULTS / "base-methods.md", page(results))
    readme = Path("README.md")
    write_atomically(readme, fill(readme.read_text(encoding="utf-8"), COMMAND, table(results)))
    print(f"{len(results)} of {len([*jobs()])} runs; written to {RESULTS / 'base-methods.md'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", action="store_true", help="only make the tables")
    parser.add_argument("--share", default="1/1", help="I/N: every N-th run, beginning with the I-th")
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS), help="only these seeds")
    arguments = parser.parse_args()
    if not arguments.table:
        i, n = map(int, arguments.share.split("/"))
        for job in [job for job in jobs() if job.seed in arguments.seeds][i - 1 :: n]:
            if not (RESULTS / "runs" / f"{job.key}.json").exists():
                do(job)
    write_tables()


if __name__ == "__main__":
    main()
