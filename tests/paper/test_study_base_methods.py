"""The experiment on the base methods: every run is one that fit takes, and the page is made from the results."""

import json
from pathlib import Path

import pytest
from paper.studies import base_methods
from paper.studies.base_methods import COMMAND, RESULTS, Job, do, jobs, page, read_results, table

from tsadapt.config import RunConfig
from tsadapt.objectives.methods import METHODS
from tsadapt.report.tables import fill

ROOT = Path(__file__).parents[2]


def test_the_page_is_made_from_the_results(monkeypatch):
    monkeypatch.chdir(ROOT)
    results = read_results()
    assert (RESULTS / "base-methods.md").read_text(encoding="utf-8") == page(results)
    readme = Path("README.md").read_text(encoding="utf-8")
    assert fill(readme, COMMAND, table(results)) == readme, f"run: {COMMAND} --table"
    known = {job.key for job in jobs()}
    assert set(results) <= known
    assert len(known) == 4 * (5 * 4 + 1) * 3 + 3
    assert {job.method for job in jobs()} <= set(METHODS)


def test_a_job_is_done_once_and_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("README.md").write_text(f"<!-- made by `{COMMAND}` -->\n<!-- end -->\n", encoding="utf-8")
    job = Job("UCI → MNIST-5k", "jada", "tsa", 1)
    short = RunConfig(**{**vars(job.config()), "steps": 4, "batch_size": 8, "log_every": 2})
    monkeypatch.setattr(Job, "config", lambda self: short)
    do(job)
    (result,) = read_results().values()
    assert (result["method"], result["variant"], result["seed"]) == ("jada", "tsa", 1)
    assert [step for step, _ in result["oracle_pseudo_label_accuracy"]] == [1, 2, 4]
    assert 0 <= result["oracle_pseudo_label_accuracy"][-1][1] <= 1
    assert {"shift_norm", "variance_term", "gradient_share"} <= set(result["last_record"])
    assert f"{result['target_accuracy']:.1f} (1 of 3)" in page(read_results())
    monkeypatch.setattr(base_methods, "fit", lambda *_, **__: pytest.fail("done twice"))
    monkeypatch.setattr(base_methods, "jobs", lambda: iter([job]))
    monkeypatch.setattr("sys.argv", ["base_methods"])
    base_methods.main()
    assert f"{result['target_accuracy']:.1f} (1 of 3)" in Path("README.md").read_text(encoding="utf-8")
    assert json.loads((RESULTS / "runs" / f"{job.key}.json").read_text())["seed"] == 1
