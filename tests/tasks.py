"""A small task of feature vectors: three Gaussian classes, and the same moved."""

from pathlib import Path

import numpy as np

__all__ = ["runs_in", "write_task"]


def write_task(folder, seed=0, n=120, names=("ant", "bee", "cow"), target_labels=True, shuffle=False, counts=None):
    rng = np.random.default_rng(seed)
    centres = 2.5 * rng.normal(size=(len(names), 6))
    y_s = np.arange(n) % len(names)
    y_t = y_s if counts is None else np.repeat(np.arange(len(names)), counts)
    x_s = centres[y_s] + rng.normal(size=(n, 6))
    x_t = centres[y_t] + rng.normal(size=(len(y_t), 6)) + 0.8
    np.savez(folder / "source.npz", x=x_s, y=y_s, classes=np.array(names))
    if shuffle:
        y_t = np.random.default_rng(9).permutation(y_t)
    labels = {"y": y_t, "classes": np.array(names)} if target_labels else {}
    np.savez(folder / "target.npz", x=x_t, **labels)


def runs_in(folder):
    """The runs of a folder of runs; their locks lie beside them."""
    return [path for path in sorted(Path(folder).iterdir()) if path.is_dir()]
