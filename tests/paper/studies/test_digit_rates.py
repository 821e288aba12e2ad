"""The search for the digits' rate and batch size: the protocol has the choice, a small task goes from runs to page."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from paper.catalogue import RECIPES
from paper.protocols import PROTOCOLS
from paper.reproduce import reproduce
from paper.request import Request
from paper.studies import digit_rates
from paper.studies.digit_rates import SETTINGS
from tests.runs.conftest import write_task

STORED = Path(__file__).parents[3] / "paper/results/digit-rates.json"


@pytest.mark.parametrize("column", SETTINGS)
def test_the_protocol_has_what_was_chosen(column):
    run = json.loads(STORED.read_text(encoding="utf-8"))["runs"][f"source-only +TSA | {column} | 0"]
    chosen, config = run["candidates"][run["chosen"]], PROTOCOLS["digits"].config(column, 0)
    for name in ("batch_size", "target_batch_size", "lr"):
        assert chosen[name] == getattr(config, name)


def test_table4_at_the_first_setting_stands_on_the_page():
    assert "| source-only +TSA | 94.4 | 91.3 |" in STORED.with_suffix(".md").read_text(encoding="utf-8")


def test_from_runs_to_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    settings = {"network": "mlp", "bottleneck": 8, "steps": 6, "candidates": 2}
    task = {"A → B": ("source.npz", "target.npz")}
    monkeypatch.setitem(PROTOCOLS, "digits", replace(PROTOCOLS["digits"], tasks=task, settings=settings, of_task={}))
    monkeypatch.setitem(RECIPES, "digit-rates", replace(RECIPES["digit-rates"], columns=("A → B",)))
    monkeypatch.setattr(digit_rates, "SETTINGS", {"A → B": [(0.01, 9), (0.02, 9), (0.02, 12)]})
    written = reproduce(Request("digit-rates"), tmp_path / "out")
    (run,) = json.loads(written[0].read_text())["runs"].values()
    assert len(run["candidates"]) == 6
    chosen, page = run["candidates"][run["chosen"]], written[-1].read_text()
    assert f"**rate {chosen['lr']}, batch {chosen['batch_size']} + {chosen['batch_size']}**" in page
    last = next(c["oracle_accuracy"] for c in run["candidates"] if (c["lr"], c["step"]) == (0.01, 6))
    assert f"{100 * last:.2f}" in page
    monkeypatch.setattr(digit_rates, "run_all", lambda *_: pytest.fail("trained twice"))
    reproduce(Request("digit-rates"), tmp_path / "out")
