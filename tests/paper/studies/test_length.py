"""How long source-only needs: where a curve is flat, and a short study from training to page."""

import json

from paper.protocols import PROTOCOLS, Protocol
from paper.reproduce import reproduce
from paper.request import Request
from paper.studies.length import flat_from
from tests.runs.conftest import write_task


def test_a_curve_is_flat_from_the_first_step_that_chance_does_not_tell_from_the_best():
    curve = {10: 50.0, 100: 88.0, 200: 90.0, 300: 89.5}
    assert flat_from(curve, 100) == 100  # one standard error is 3 points
    assert flat_from(curve, 10_000) == 200  # and 0.3 here
    assert flat_from({10: 100.0, 20: 100.0}, 50) == 10


def test_from_training_to_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    settings = {"steps": 60, "holdout": 0.25, "network": "mlp", "batch_size": 8, "target_batch_size": 8, "lr": 0.01}
    protocol = Protocol("small", {"a → b": ("source.npz", "source.npz")}, settings, "short", 0.01, general=False)
    monkeypatch.setitem(PROTOCOLS, "length", protocol)
    written = reproduce(Request("length", seeds=(0, 1)), tmp_path / "out")
    run = json.loads(written[0].read_text())["runs"]["source-only | a → b | 0"]
    assert [*run["held_out"]] == ["10", "25", "50", "60"] == [*run["oracle"]]
    rows, classes = run["data"]["source"]["rows"], run["classes"]
    default = max(100, -(-4 * rows // 8), -(-300 * classes // 8))
    line = next(line for line in written[-1].read_text().splitlines() if line.startswith("| a → b |"))
    assert line.split(" | ")[1:3] == [str(rows), str(classes)]
    assert line.split(" | ")[4] == str(default)
    assert "Means over 2 seeds." in written[-1].read_text()
