"""A protocol small enough to reproduce any table on."""

import numpy as np
import pytest
from paper.protocols import PROTOCOLS, Protocol, missing


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A protocol of small tables of features, and short runs."""
    rng = np.random.default_rng(0)
    for name, shift in (("a", 0.0), ("b", 0.6), ("c", -0.6)):
        y = np.arange(45) % 3
        x = 3 * np.eye(3, 6)[y] + rng.normal(size=(45, 6)) + shift
        np.savez(tmp_path / f"{name}.npz", x=x.astype(np.float32), y=y)
    files = {name: str(tmp_path / f"{name}.npz") for name in "abc"}
    settings = {
        "network": "mlp", "bottleneck": 8, "steps": 6, "batch_size": 9, "target_batch_size": 9, "lr": 0.02,
        "candidates": 3,
    }  # fmt: skip
    protocol = Protocol(
        "tiny", {"A → B": (files["a"], files["b"]), "B → C": (files["b"], files["c"])}, settings, "tiny runs", 0.001
    )
    monkeypatch.setitem(PROTOCOLS, "tiny", protocol)
    missing.cache_clear()
    monkeypatch.chdir(tmp_path)
    return tmp_path
