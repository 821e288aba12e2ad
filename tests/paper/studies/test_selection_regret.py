"""How well validators choose: pools are the paper's grid, and a small task goes from runs to page and picture."""

import json
from pathlib import Path

import pytest
from paper.protocols import PROTOCOLS, Protocol
from paper.reproduce import reproduce
from paper.request import Plan, Request
from paper.studies import selection_regret
from paper.studies.selection_regret import pool_of
from tests.runs.conftest import write_task


def test_a_pool_is_the_papers_grid_and_source_only():
    job = Plan(Request("selection")).jobs[0]
    pool = pool_of(job, Path("work"))
    assert len({one.out for one in pool}) == len(pool) == selection_regret.POOL == 26
    assert pool[0].config.method == "source-only"
    assert {one.config.method for one in pool[1:]} == {"cdan+e"}
    assert {one.config.holdout for one in pool} == {0.1}


def test_from_runs_to_page_and_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    settings = {"network": "mlp", "bottleneck": 8, "steps": 15, "batch_size": 16, "target_batch_size": 16, "lr": 0.01}
    task = {"small → moved": ("source.npz", "target.npz")}
    protocol = Protocol("small", task, {**settings, "holdout": 0.1}, "short", 0.01, general=False)
    monkeypatch.setitem(PROTOCOLS, "selection", protocol)
    monkeypatch.setattr(selection_regret, "PAPER_GRID", ("lambda0=0.1,0.5", "beta=0.05,0.1"))
    written = reproduce(Request("selection"), tmp_path / "out")
    (run,) = json.loads(written[0].read_text())["runs"].values()
    assert len(run["candidates"]) == 5
    assert run["with_guard"]["consensus"]["regret"] >= 0
    assert "| **consensus** | " in written[-1].read_text()
    assert "| small → moved | " in written[-1].read_text()
    assert written[1].stat().st_size > 1000
    monkeypatch.setattr(selection_regret, "run_all", lambda *_: pytest.fail("trained twice"))
    reproduce(Request("selection"), tmp_path / "out")
