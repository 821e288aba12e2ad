"""The estimator on embeddings of photographs, beside logistic regression and skada's shallow methods.

    python -m paper.studies.embeddings            run what is missing, then make the tables
    python -m paper.studies.embeddings --table    only make the tables of what is there

MobileNetV2 features of Office-Caltech-10 (12 tasks) and PACS (6 tasks among photo, art_painting and cartoon) are read
from TSADAPT_DATA. Everything has its default settings, the same for all tasks; accuracies are of the last step. skada
runs in an environment of its own, .venv-skada, made when first needed. Every task that is done is a file under
paper/results/embeddings and is never done again.
"""

import argparse
import json
import os
import statistics
import subprocess
import warnings
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.measure import versions
from benchmarks.skada_environment import skada_python

from tsadapt import DomainAdaptationClassifier, TSAClassifier
from tsadapt.errors import UserError
from tsadapt.files import write_atomically, write_json
from tsadapt.report.tables import fill

COMMAND = "python -m paper.studies.embeddings"
RESULTS = Path("paper/results/embeddings")
SEEDS = (0, 1, 2)
SETS = {
    "Office-Caltech-10": ("office-caltech", ("amazon", "caltech10", "dslr", "webcam")),
    "PACS": ("pacs", ("photo", "art_painting", "cartoon")),
}
OTHERS = {"logistic regression": "logistic regression", "CORAL": "skada CORAL", "OTMapping": "skada OTMapping"}
OURS: dict[str, DomainAdaptationClassifier] = {
    "source-only": DomainAdaptationClassifier(),
    "+MI": DomainAdaptationClassifier(mi=True),
    "+TSA": TSAClassifier(),
}


def tasks() -> Iterator[tuple[str, str, str]]:
    """Set, source and target."""
    for name, (_, domains) in SETS.items():
        for source, target in permutations(domains, 2):
            yield name, source, target


def features(name: str, domain: str) -> Path:
    """The file of a domain's features."""
    root = os.environ.get("TSADAPT_DATA")
    path = Path(root or "") / "features" / f"{SETS[name][0]}_{domain}.npz"
    if root is None or not path.is_file():
        raise UserError(f"No features at {path}: name the folder that has features/*.npz with TSADAPT_DATA.")
    return path


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels."""
    with np.load(path, allow_pickle=False) as file:
        return file["x"].astype(np.float32), file["y"]


def do(name: str, source: str, target: str) -> None:
    """All methods on a task; target labels only judge."""
    files = features(name, source), features(name, target)
    command = [str(skada_python()), "benchmarks/skada_side.py", "accuracy", *map(str, files)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    accuracy: dict[str, Any] = {k: round(100 * v, 2) for k, v in json.loads(said.splitlines()[-1]).items()}
    (x_s, y_s), (x_t, y_t) = map(read, files)
    for title, clf in OURS.items():
        found = []
        for seed in SEEDS:
            clf.set_params(random_state=seed)
            found.append(round(100 * float(clf.fit(x_s, y_s, X_target=x_t).score(x_t, y_t)), 2))
        accuracy[title] = found
    result = {"set": name, "source": source, "target": target, "accuracy": accuracy, "command": COMMAND}
    write_json(place(name, source, target), result | {"versions": versions() | {"skada": "0.6.0"}})
    print(f"{name} {source} → {target}: {accuracy}", flush=True)


def place(name: str, source: str, target: str) -> Path:
    """Where the result of a task is kept."""
    return RESULTS / f"{SETS[name][0]}_{source}_{target}.json"


def means(name: str) -> dict[str, tuple[float, float | None]] | None:
    """Average over the tasks of a set for each method, and the deviation of that average over the seeds."""
    found = [place(*task) for task in tasks() if task[0] == name]
    if not all(path.exists() for path in found):
        return None
    rows = [json.loads(path.read_text(encoding="utf-8"))["accuracy"] for path in found]
    table: dict[str, tuple[float, float | None]] = {
        method: (statistics.mean(row[method] for row in rows), None) for method in OTHERS
    }
    for method in OURS:
        by_seed = [statistics.mean(row[method][i] for row in rows) for i in range(len(SEEDS))]
        table[method] = statistics.mean(by_seed), statistics.stdev(by_seed)
    return table


def summary() -> str:
    """One line for each method: the average over the tasks of each set."""
    sizes = {name: sum(task[0] == name for task in tasks()) for name in SETS}
    lines = [
        "| | " + " | ".join(f"{name}, {n} tasks" for name, n in sizes.items()) + " |",
        "|---|" + "---|" * len(SETS),
    ]
    columns = {name: means(name) for name in SETS}
    for method, title in {**OTHERS, **{m: f"ours, {m}" for m in OURS}}.items():
        cells = []
        for column in columns.values():
            mean, deviation = (None, None) if column is None else column[method]
            cells.append("–" if mean is None else f"{mean:.1f}" + ("" if deviation is None else f" ± {deviation:.1f}"))
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def every_task() -> str:
    """One line for each task."""
    methods = [*OTHERS, *OURS]
    lines = ["| | " + " | ".join([*OTHERS.values(), *OURS]) + " |", "|---|" + "---|" * len(methods)]
    for name, source, target in tasks():
        path = place(name, source, target)
        if path.exists():
            row = json.loads(path.read_text(encoding="utf-8"))["accuracy"]
            cells = [f"{row[m]:.1f}" if m in OTHERS else _spread(row[m]) for m in methods]
            lines.append(f"| {name}: {source} → {target} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def write_tables() -> None:
    """Write the page of what is there, and the README's table."""
    head = f"Made by `{COMMAND}`: target accuracy, %, last step, mean ± deviation of three seeds; skada 0.6.0."
    write_atomically(RESULTS / "embeddings.md", "\n\n".join([head, summary(), every_task()]) + "\n")
    readme = Path("README.md")
    write_atomically(readme, fill(readme.read_text(encoding="utf-8"), COMMAND, summary()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", action="store_true", help="only make the tables")
    warnings.filterwarnings("ignore", "There is no target")
    if not parser.parse_args().table:
        for task in tasks():
            if not place(*task).exists():
                do(*task)
    write_tables()


if __name__ == "__main__":
    main()
