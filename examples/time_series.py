"""Adapt your own network, here a small 1-D CNN, to time series of another sensor.

    python examples/time_series.py

The series are made: one period and a half of a sine, a square or a sawtooth wave, of which only the source has labels.
The target's sensor is noisier, has another gain and an offset that drifts.
"""

import numpy as np
import torch
from torch import nn

from tsadapt import DomainAdaptationClassifier, TSAClassifier

LENGTH = 64


def series(
    n: int, seed: int, gain: float = 1.0, noise: float = 0.1, drift: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Waves (n, 1, 64) of three kinds and random phase, and their kinds."""
    rng = np.random.default_rng(seed)
    kinds = np.array(["sine", "square", "sawtooth"])
    t = np.linspace(0, 1.5, LENGTH) + rng.uniform(0, 1, (n, 1))
    y = np.arange(n) % 3
    sine = np.sin(2 * np.pi * t)
    waves = np.stack([sine, np.sign(sine), 2 * (t % 1) - 1])[y, np.arange(n)]
    x = gain * waves + drift * np.linspace(0, 1, LENGTH) + rng.normal(0, noise, (n, LENGTH))
    return x[:, None], kinds[y]


def encoder() -> nn.Module:
    """A 1-D CNN from series (B, 1, L) to features (B, 32); batch normalisation scales what the sensors measure."""
    return nn.Sequential(
        nn.BatchNorm1d(1),
        nn.Conv1d(1, 16, 7, padding=3), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(16, 32, 5, padding=2), nn.BatchNorm1d(32), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
    )  # fmt: skip


def main(steps: int = 200, seed: int = 0) -> dict[str, float]:
    """Train, print and return target accuracies; the target's labels only judge."""
    x_source, y_source = series(300, seed=1)
    x_target, y_target = series(300, seed=2, gain=0.6, noise=0.2, drift=0.6)
    torch.manual_seed(seed)  # the weights that the networks start from
    adapting = {
        "source-only": DomainAdaptationClassifier(backbone=encoder(), bottleneck=32, steps=steps, random_state=seed),
        "+TSA": TSAClassifier(backbone=encoder(), bottleneck=32, steps=steps, random_state=seed),
    }
    accuracies = {}
    for name, clf in adapting.items():
        clf.fit(x_source, y_source, X_target=x_target)
        accuracies[name] = float(clf.score(x_target, y_target))
        print(f"{name:<12} {accuracies[name]:.1%}")
    return accuracies


if __name__ == "__main__":
    main()
