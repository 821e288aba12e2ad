"""What a few labels of the target add: UCI digits to MNIST digits, with and without 3 labelled rows a class.

    python -m benchmarks.few_labels [--labels 3] [--seeds 0 1 2]

Accuracy on the rows without a label, the same ones in both columns. Which rows have labels is drawn by the seed.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch

import tsadapt
from tsadapt.data.open import open_dataset

SOURCE, TARGET = "digits:uci", "digits:mnist-5k"
OBJECTIVES = {"source-only": {}, "mi": {"mi": True}, "tsa": {"tsa": True}}


def drawn(labels: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """The labels of `per_class` rows of each class, −1 for all others."""
    rng, found = np.random.default_rng(seed), np.full(len(labels), -1)
    for c in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == c))[:per_class]
        found[rows] = c
    return found


def accuracy(folder: Path, labels: np.ndarray, few: np.ndarray, use: bool, **settings: object) -> float:
    """In percent, on the rows that have no label in `few`."""
    names = open_dataset(TARGET).train.classes or ()
    given = [names[label] if label >= 0 else None for label in few]
    extra = {"target_labels": given, "use_target_labels": True} if use else {}
    model = tsadapt.fit(SOURCE, TARGET, out=folder, **settings, **extra)  # type: ignore[arg-type]
    guess = model.outputs(open_dataset(TARGET).train).guess
    return float(100 * (guess == labels)[few < 0].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=3, help="labelled rows of each class")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="as many steps as suit the data, unless given")
    given = parser.parse_args()
    torch.set_num_threads(1)
    y = open_dataset(TARGET).train.y
    assert y is not None
    labels = y.numpy()
    print(f"{SOURCE} → {TARGET}, {given.labels} labels a class, accuracy on the other rows, {len(given.seeds)} seeds")
    print("| | without | with | gain |\n|---|---|---|---|")
    for name, settings in OBJECTIVES.items():
        pairs = []
        for seed in given.seeds:
            few = drawn(labels, given.labels, seed)
            with tempfile.TemporaryDirectory() as folder:
                pairs.append(
                    [
                        accuracy(Path(folder) / str(use), labels, few, use, seed=seed, steps=given.steps, **settings)
                        for use in (False, True)
                    ]
                )
        without, with_labels = zip(*pairs, strict=True)
        gains = [b - a for a, b in pairs]
        cells = (_cell(without), _cell(with_labels), _cell(gains, sign="+"))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _cell(values: "tuple[float, ...] | list[float]", sign: str = "") -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{sign}.1f}{spread}"


if __name__ == "__main__":
    main()
