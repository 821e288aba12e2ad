"""The table of how long `fit` takes is made from what was measured; our side runs."""

import json
from pathlib import Path

import numpy as np
from benchmarks import estimator

from tsadapt.report.tables import fill

ROOT = Path(__file__).parents[2]


def test_the_page_has_what_was_measured():
    page = (ROOT / "docs/embeddings.md").read_text(encoding="utf-8")
    result = json.loads((ROOT / "paper/results/benchmarks/estimator.json").read_text(encoding="utf-8"))
    assert page == fill(page, estimator.COMMAND, estimator.table(result))


def test_the_side_that_times_ours(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(240, 8)).astype(np.float32), np.arange(240) % 3
    np.savez(tmp_path / "both.npz", x_s=x, y_s=y, x_t=x + 0.5)
    found = estimator.ours(str(tmp_path / "both.npz"), steps=3, batch=16, threads=1)
    assert set(found) == {"source-only", "+MI", "TSAClassifier", "bare loop", "MLPClassifier", "LogisticRegression"}
    assert min(found.values()) > 0
