"""Our estimator on embeddings, beside others: what was measured, and a small task from fit to page."""

import json
from pathlib import Path

from paper.protocols import PROTOCOLS, Protocol
from paper.reproduce import reproduce
from paper.request import Plan, Request
from paper.studies import embeddings_accuracy
from paper.studies.embeddings_accuracy import OTHERS, means_by_set
from tests.runs.conftest import write_task

STORED = Path(__file__).parents[3] / "paper/results/embeddings.json"


def test_every_task_is_there_and_tsa_is_above_source_only_and_skada():
    runs = json.loads(STORED.read_text(encoding="utf-8"))["runs"]
    jobs, columns = Plan(Request("embeddings")).whole({})
    assert len(columns) == 18
    assert set(runs) == {job.key for job in jobs}
    means = means_by_set(runs)
    for name in means["+TSA"]:
        assert means["+TSA"][name].mean > max(means[other][name].mean for other in (*OTHERS, "source-only"))


def test_from_fit_to_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    task = {"Small: a → b": ("source.npz", "source.npz")}
    monkeypatch.setitem(PROTOCOLS, "embeddings", Protocol("small", task, {"steps": 5}, "short", 0.01, general=False))
    monkeypatch.setattr(embeddings_accuracy, "_others", lambda row, source, target: 0.5)
    written = reproduce(Request("embeddings", seeds=(0, 1)), tmp_path / "out")
    runs = json.loads(written[0].read_text())["runs"]
    assert len(runs) == 3 + 4 * 2
    assert runs["skada CORAL | Small: a → b | 0"]["accuracy"] == 50
    assert "| skada CORAL | 50.0 |" in written[-1].read_text()
    assert 0 <= runs["+TSA | Small: a → b | 1"]["accuracy"] <= 100
