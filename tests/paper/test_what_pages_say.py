"""What stands on the page of a table."""

import json
import sys
from dataclasses import replace
from statistics import mean, stdev

import numpy as np
import pytest
from paper import RECIPES, Asked, Recipe, reproduce
from paper.protocols import PLACES, place_named
from paper.rows import Row
from paper.tables import Cell, rows_told
from PIL import Image

from tsadapt.errors import UserError


def kept(folder, stem):
    return json.loads((folder / f"{stem}.json").read_text())


def test_the_papers_numbers_stand_beside_ours_at_home(tiny, monkeypatch):
    home = replace(PLACES["tiny"], tasks={"M → U": PLACES["tiny"].tasks["A → B"]})
    monkeypatch.setitem(PLACES, "digits", home)
    asked = Asked(seeds=(0,), rows=("source-only", "source-only +TSA"))
    reproduce("table4", asked, tiny / "out")
    page = (tiny / "out" / "table4.md").read_text()
    assert "| · the paper | 79.4 ± 0.4 |" in page
    ours = kept(tiny / "out", "table4")["runs"]["source-only +TSA | M → U | 0"]["accuracy"]
    assert f"| · difference | {ours - 90.9:+.1f} |" in page
    assert "mixes protocols" in page


def test_the_papers_memory_and_gain_stand_beside_ours(tiny, monkeypatch):
    monkeypatch.setitem(PLACES, "office31", PLACES["tiny"])
    measured = {"statistics_mb": 1.5, "model_mb": 2.5, "peak_mb": 300.0}
    monkeypatch.setattr("paper.extras.footprint", lambda config: measured)
    page = reproduce("table-memory", Asked(seeds=(0,)), tiny / "out")[-1].read_text()
    assert "| | statistics | parameters | peak of the process | gain |" in page
    assert "| · the paper | – | – | 7500 on a GPU | +13.2 |" in page
    assert "| · the paper | – | – | 7200 on a GPU | – |" in page
    monkeypatch.setattr("paper.extras.footprint", lambda config: {**measured, "gpu_peak_mb": 90.5})
    page = reproduce("table-memory", Asked(seeds=(0,)), tiny / "other")[-1].read_text()
    assert "| +TSA, memory | 1.5 | 2.5 | 300.0 | 90.5 | " in page
    assert "| · the paper | – | – | – | 7500 | +13.2 |" in page


def test_a_cell():
    cell = Cell((90.0, 92.0), 3, 90.5)
    assert (cell.mean, round(cell.deviation, 3), cell.difference) == (91.0, 1.414, 0.5)
    assert Cell((), 3, 90.5).mean is None
    assert Cell((90.0,), 3, None).difference is None


def test_last_selected_and_oracle_stand_in_their_places(tiny):
    asked = Asked(on="tiny", rows=("DANN", "DANN +MI"), seeds=(0, 1))
    page = reproduce("table5", asked, tiny / "out")[-1].read_text()
    runs = kept(tiny / "out", "table5-on-tiny")["runs"]
    by_task = {c: [runs[f"DANN | {c} | {seed}"] for seed in (0, 1)] for c in ("A → B", "B → C")}
    cells, average = [], []
    for those in by_task.values():
        last = [run["accuracy"] for run in those]
        chosen, best = ([run[which]["accuracy"] for run in those] for which in ("selected", "oracle"))
        assert all(b >= max(a, s) for a, s, b in zip(last, chosen, best, strict=True))
        cells.append([mean(last), mean(chosen), mean(best)])
    average = [mean(parts) for parts in zip(*cells, strict=True)]
    told = " | ".join(" / ".join(f"{value:.1f}" for value in cell) for cell in (*cells, average))
    assert f"| DANN | {told} |" in page
    # The average of the main table is over the tasks, and its deviation over the seeds.
    by_seed = [mean(by_task[c][seed]["accuracy"] for c in by_task) for seed in (0, 1)]
    assert f" | {mean(by_seed):.1f} ± {stdev(by_seed):.1f} (2 of 3 seeds) |" in page


def test_one_measure_throughout(tiny, monkeypatch):
    monkeypatch.setitem(PLACES, "tiny", replace(PLACES["tiny"], measure="mean_class_accuracy"))
    with np.load("b.npz") as file:
        x, y = file["x"], file["y"]
    few = np.flatnonzero((y > 0) | (np.arange(45) < 9))  # of other class sizes: the measures differ
    np.savez("b.npz", x=x[few], y=y[few])
    asked = Asked(on="tiny", rows=("DANN",), seeds=(0,), columns=("A → B",))
    page = reproduce("table5", asked, tiny / "out")[-1].read_text()
    run = kept(tiny / "out", "table5-on-tiny")["runs"]["DANN | A → B | 0"]
    three = (run["mean_class_accuracy"], *(run[which]["mean_class_accuracy"] for which in ("selected", "oracle")))
    assert run["accuracy"] != run["mean_class_accuracy"]
    assert " / ".join(f"{value:.1f}" for value in three) in page
    assert "Mean of the target's class accuracies, %" in page


def drawing(home):
    """A recipe that draws by itself."""

    def draws(config, work, beside, quick):
        beside.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2)).save(beside.with_name(f"{beside.name}.png"))
        return {}

    return Recipe("drawn", home, [Row("drawn", {})], columns=("A → B",), alone=draws)


def test_a_page_shows_its_own_pictures(tiny, monkeypatch):
    """Not those of the same figure on other data, nor another picture for being made by another call."""
    for name in ("tiny", "tiny-too"):
        monkeypatch.setitem(PLACES, name, PLACES["tiny"])
    monkeypatch.setitem(RECIPES, "figure-bias", drawing("tiny"))
    asked = Asked(columns=("A → B",), seeds=(1,))
    assert [p.name for p in reproduce("figure-bias", asked, tiny / "out")[1:-1]] == ["figure-bias-A-B-1.png"]
    reproduce("figure-bias", replace(asked, on="tiny-too", seeds=(0,)), tiny / "out")
    page = reproduce("figure-bias", replace(asked, seeds=(0, 1)), tiny / "out")[-1].read_text()
    assert "](figure-bias.png)" in page
    assert "](figure-bias-A-B-1.png)" in page
    assert "tiny-too" not in page
    assert len([*(tiny / "out").glob("*.png")]) == 3


def test_what_is_not_here_is_said_on_the_page_for_good(tiny, monkeypatch, capsys):
    place = PLACES["tiny"]
    nowhere = {**place.tasks, "B → X": (place.tasks["B → C"][0], str(tiny / "nowhere.npz"))}
    monkeypatch.setitem(PLACES, "tiny", replace(place, tasks=nowhere))
    asked = Asked(on="tiny", rows=("DANN",), seeds=(0,))
    told = f"Not run: 24 runs, {tiny / 'nowhere.npz'} is not here."
    assert told in reproduce("table5", asked, tiny / "out")[-1].read_text()
    assert "not run (1 run): " in capsys.readouterr().err
    for again in (replace(asked, columns=("A → B",)), replace(asked, only_collect=True)):
        assert told in reproduce("table5", again, tiny / "out")[-1].read_text()


def test_a_failed_run_is_said_until_it_succeeds(tiny, monkeypatch):
    place = PLACES["tiny"]
    monkeypatch.setitem(PLACES, "tiny", replace(place, settings={**place.settings, "lr": 1e30}))
    asked = Asked(on="tiny", rows=("DANN", "DANN +MI"), seeds=(0,), columns=("A → B",))
    with pytest.raises(UserError, match="nothing of table5 is there"):
        reproduce("table5", asked, tiny / "out")
    assert set(kept(tiny / "out", "table5-on-tiny")["not_run"]) == {"DANN | A → B | 0", "DANN +MI | A → B | 0"}
    monkeypatch.setitem(PLACES, "tiny", place)
    page = reproduce("table5", replace(asked, rows=("DANN",)), tiny / "out")[-1].read_text()
    assert "Not run: 1 run, " in page
    assert "Not run: " not in reproduce("table5", asked, tiny / "out")[-1].read_text()


def test_moons_of_each_seed_are_not_data_that_changed():
    def run(fingerprint, rows=300, images=""):
        roles = (("source", 300), ("target", rows))
        return {"data": {role: {"rows": n, "fingerprint": role + fingerprint, "images": images} for role, n in roles}}

    assert "changed" not in rows_told({"DANN | moons | 1": run("a"), "DANN | moons | 2": run("b")})
    assert "changed" in rows_told({"DANN | moons | 1": run("a"), "TSA | moons | 1": run("b")})
    assert rows_told({"DANN | moons | 1": {}}) == ""
    shares = {"a | A → B | 0": run("a"), "b | A → B | 0": run("a", rows=1200)}
    assert rows_told(shares) == "Rows trained on (source + target): A → B 300 + 300 to 1,200."
    assert rows_told({"a | A → B | 0": run("a", 9, "28×28")}).endswith("A → B 300 of 28×28 + 9 of 28×28.")


def test_other_weights_are_another_protocol(tiny, monkeypatch):
    page = "trained with random weights, bottleneck 256"
    assert page in place_named("office31", weights="none").protocol
    mine = tiny / "mine.pth"
    mine.write_bytes(b"some weights")
    assert "backbone with the weights of mine.pth" in place_named("office31", True, str(mine)).protocol
    # A file of its own, and beside the paper's numbers only with weights that were learnt.
    home = replace(PLACES["tiny"], tasks={"A → W": PLACES["tiny"].tasks["A → B"]})
    monkeypatch.setitem(PLACES, "office31", home)
    module = sys.modules["paper.request"]
    monkeypatch.setattr(module, "place_named", lambda name, frozen, weights: PLACES[name])
    asked = Asked(rows=("source-only",), seeds=(0,))
    for weights, stem, beside in (
        (None, "table2", True),
        (str(mine), "table2-weights-mine-a0c76a31", True),
        ("none", "table2-weights-none", False),
    ):
        written = reproduce("table2", replace(asked, weights=weights), tiny / "out")
        assert written[-1].name == f"{stem}.md"
        assert ("· the paper" in written[-1].read_text()) is beside


def test_frozen_has_another_protocol():
    assert place_named("office-home", frozen=True).settings["freeze_backbone"] is True
    assert place_named("office-home", frozen=True).protocol != place_named("office-home").protocol
