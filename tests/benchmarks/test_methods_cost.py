"""The table of what methods cost is made from what was measured."""

import json
from pathlib import Path

from benchmarks.methods import COMMAND, table

from tsadapt.report.tables import fill

ROOT = Path(__file__).parents[2]


def test_the_table_is_made_from_the_results():
    rows = json.loads((ROOT / "paper/results/benchmarks/methods-cost.json").read_text(encoding="utf-8"))["rows"]
    page = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    assert fill(page, COMMAND, table(rows)) == page, f"run: {COMMAND} --table"
