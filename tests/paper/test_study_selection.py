"""The experiment on validators: its pools are runs that fit takes, and page and picture are made from the results."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from paper.studies import selection
from paper.studies.selection import COMMAND, RESULTS, TASKS, page, pool_of, read_results
from tests.runs.conftest import write_task

from tsadapt.report.tables import fill
from tsadapt.sweep.plan import Planned

ROOT = Path(__file__).parents[2]


def test_the_page_is_made_from_the_results(monkeypatch):
    monkeypatch.chdir(ROOT)
    results = read_results()
    assert len(results) == len(TASKS)
    assert (RESULTS / "selection.md").read_text(encoding="utf-8") == page(results)
    docs = Path("docs/selection.md").read_text(encoding="utf-8")
    assert fill(docs, COMMAND, page(results).rstrip()) == docs, f"run: {COMMAND} --table"
    assert (RESULTS / "sensitivity.png").exists()


def test_a_pool_is_the_papers_grid_and_source_only():
    pool = pool_of("UCI → MNIST-5k")
    assert len({one.out for one in pool.planned}) == len(pool.planned) == 26
    assert pool.planned[0].config.method == "source-only"
    assert {one.config.method for one in pool.planned[1:]} == {"cdan+e"}
    assert {one.config.holdout for one in pool.planned} == {0.1}


def test_from_runs_to_page_and_picture(tmp_path, monkeypatch):
    """The whole experiment on a small task; a pool that is there is not trained again."""
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    Path("docs").mkdir()
    Path("docs/selection.md").write_text(f"<!-- made by `{COMMAND}` -->\n<!-- end -->\n", encoding="utf-8")
    monkeypatch.setattr(selection, "TASKS", {"small → moved": ("source.npz", "target.npz")})
    monkeypatch.setattr(selection, "PAPER_GRID", ("lambda0=0.1,0.5", "beta=0.05,0.1"))

    def short(base, overrides, folder):
        return made(replace(base, steps=15, batch_size=16, bottleneck=8), overrides, folder)

    made = Planned.of
    monkeypatch.setattr(Planned, "of", short)
    monkeypatch.setattr("sys.argv", ["selection"])
    selection.main()
    (result,) = read_results()
    assert len(result["candidates"]) == 5
    assert result["with_guard"]["consensus"]["regret"] >= 0
    text = (RESULTS / "selection.md").read_text(encoding="utf-8")
    assert "**consensus**" in text
    assert "| small → moved |" in Path("docs/selection.md").read_text(encoding="utf-8")
    assert (RESULTS / "sensitivity.png").stat().st_size > 1000
    assert json.loads((RESULTS / "small-moved.json").read_text())["task"] == "small → moved"
    monkeypatch.setattr(selection, "run_all", lambda *_: pytest.fail("trained twice"))
    selection.main()
