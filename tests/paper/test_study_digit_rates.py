"""The search for the digits' rate and batch size: the recipe has what was chosen, the page is made of the results."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from paper.protocols import PLACES
from paper.studies import digit_rates
from paper.studies.digit_rates import RESULTS, SETTINGS, folder_of, page
from tests.runs.conftest import write_task

ROOT = Path(__file__).parents[2]


def test_the_page_is_made_from_the_results(monkeypatch):
    monkeypatch.chdir(ROOT)
    text = page()
    assert (RESULTS / "README.md").read_text(encoding="utf-8") == text
    assert all(f"## {column}" in text for column in SETTINGS)
    assert "| source-only +TSA | 94.4 | 91.3 |" in text  # at the first setting


@pytest.mark.parametrize("column", SETTINGS)
def test_the_recipe_has_what_was_chosen(column, monkeypatch):
    monkeypatch.chdir(ROOT)
    chosen = json.loads((folder_of(column) / "choice.json").read_text(encoding="utf-8"))["overrides"]
    config = PLACES["digits"].config(column, 0)
    assert chosen == {name: getattr(config, name) for name in ("batch_size", "target_batch_size", "lr")}


def test_from_runs_to_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    settings = {"network": "mlp", "bottleneck": 8, "steps": 6, "candidates": 2}
    place = replace(PLACES["digits"], tasks={"A → B": ("source.npz", "target.npz")}, settings=settings, of_task={})
    monkeypatch.setitem(PLACES, "digits", place)
    monkeypatch.setattr(digit_rates, "SETTINGS", {"A → B": [(0.01, 9), (0.02, 9), (0.02, 12)]})
    monkeypatch.setattr("sys.argv", ["digit_rates"])
    digit_rates.main()
    text = (RESULTS / "README.md").read_text(encoding="utf-8")
    oracle = json.loads((RESULTS / "a-b" / "oracle.json").read_text(encoding="utf-8"))
    assert len(oracle["accuracies"]) == 6
    choice = json.loads((RESULTS / "a-b" / "choice.json").read_text(encoding="utf-8"))
    rate, batch = choice["overrides"]["lr"], choice["overrides"].get("batch_size")
    assert f"**Chosen: rate {rate}, batch {batch} + {batch}**" in text
    assert "Made by `python -m paper.studies.digit_rates`: python " in text
    last = oracle["accuracies"]["lr-0.01-batch-9, step 6"]
    assert f"| rate 0.01 | {100 * last:.2f} | – |" in text or f"| rate 0.01 | **{100 * last:.2f}** | – |" in text
    monkeypatch.setattr(digit_rates, "run_all", lambda *_: pytest.fail("trained twice"))
    digit_rates.main()
