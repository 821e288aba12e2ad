"""A small task of feature vectors (three Gaussian classes, and the same moved), and one of small photographs."""

from dataclasses import replace

import numpy as np
import pytest
from tests.photos import SHORT, TINY, write_classes, write_flat

from tsadapt.config import RunConfig


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


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A short TSA run on that task, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    return RunConfig(
        "source.npz", "target.npz", source_term="tsa", mi=True, bottleneck=8, steps=24, batch_size=16, lr=0.05,
        log_every=5, checkpoint_every=7, device="cpu",
    )  # fmt: skip


@pytest.fixture
def frozen(tmp_path, monkeypatch):
    """A TSA run from class folders to a flat folder, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path / "cache"))
    write_classes(tmp_path / "labelled")
    write_flat(tmp_path / "new")
    see = {"backbone": TINY, "weights": "none", "image_size": 32, "device": "cpu", "workers": 0}
    return RunConfig("labelled", "new", source_term="tsa", mi=True, **see, **SHORT)


@pytest.fixture
def trained(frozen):
    return replace(frozen, freeze_backbone=False)
