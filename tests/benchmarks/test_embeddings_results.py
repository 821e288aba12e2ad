import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import estimator
from paper.studies import embeddings

from tsadapt.report.tables import fill

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def _at_home(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_the_readme_has_what_was_measured():
    readme = Path("README.md").read_text(encoding="utf-8")
    assert readme == fill(readme, embeddings.COMMAND, embeddings.summary())
    assert embeddings.summary() in (embeddings.RESULTS / "embeddings.md").read_text(encoding="utf-8")
    page = Path("docs/embeddings.md").read_text(encoding="utf-8")
    result = json.loads(Path("paper/results/benchmarks/estimator.json").read_text(encoding="utf-8"))
    assert page == fill(page, estimator.COMMAND, estimator.table(result))


def test_tsa_is_above_source_only_and_skadas_on_both_sets():
    for name in embeddings.SETS:
        table = embeddings.means(name)
        assert table is not None, name
        others = [table[method][0] for method in (*embeddings.OTHERS, "source-only")]
        assert table["+TSA"][0] > max(others)


def test_every_task_is_there():
    assert len([*embeddings.tasks()]) == 18
    assert all(embeddings.place(*task).exists() for task in embeddings.tasks())


def test_the_side_that_times_ours(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(240, 8)).astype(np.float32), np.arange(240) % 3
    np.savez(tmp_path / "both.npz", x_s=x, y_s=y, x_t=x + 0.5)
    found = estimator.ours(str(tmp_path / "both.npz"), steps=3, batch=16, threads=1)
    assert set(found) == {"source-only", "+MI", "TSAClassifier", "bare loop", "MLPClassifier", "LogisticRegression"}
    assert min(found.values()) > 0
