"""What stands on the page of a table."""

import json
import sys
from dataclasses import replace
from statistics import mean, stdev

import numpy as np
import pytest
from paper.catalogue import RECIPES
from paper.cells import Cell
from paper.jobs import Job, _data
from paper.page import data_text
from paper.protocols import PROTOCOLS, missing, protocol_named, short_copy
from paper.recipe import Recipe
from paper.reproduce import _say_short, reproduce
from paper.request import Request
from paper.rows import Row
from PIL import Image
from tests.configs import run_config
from tests.photos import write_classes

from tsadapt.errors import UserError


def kept(folder, stem):
    return json.loads((folder / f"{stem}.json").read_text())


def test_the_papers_numbers_stand_beside_ours_at_home(tiny, monkeypatch):
    home = replace(PROTOCOLS["tiny"], tasks={"M → U": PROTOCOLS["tiny"].tasks["A → B"]})
    monkeypatch.setitem(PROTOCOLS, "digits", home)
    request = Request("table4", seeds=(0,), rows=("source-only", "source-only +TSA"))
    reproduce(request, tiny / "out")
    page = (tiny / "out" / "table4.md").read_text()
    assert "| · the paper | 79.4 ± 0.4 |" in page
    ours = kept(tiny / "out", "table4")["runs"]["source-only +TSA | M → U | 0"]["accuracy"]
    assert f"| · difference | {ours - 90.9:+.1f} |" in page
    assert "mixes protocols" in page


def test_the_papers_memory_and_gain_stand_beside_ours(tiny, monkeypatch):
    monkeypatch.setitem(PROTOCOLS, "office31", PROTOCOLS["tiny"])
    measured = {"statistics_mb": 1.5, "model_mb": 2.5, "peak_mb": 300.0}
    monkeypatch.setattr("paper.analyses.footprint.footprint", lambda config: measured)
    page = reproduce(Request("table-memory", seeds=(0,)), tiny / "out")[-1].read_text()
    assert "| | statistics | parameters | peak of the process | gain |" in page
    assert "| · the paper | – | – | 7500 on a GPU | +13.2 |" in page
    assert "| · the paper | – | – | 7200 on a GPU | – |" in page
    monkeypatch.setattr("paper.analyses.footprint.footprint", lambda config: {**measured, "gpu_peak_mb": 90.5})
    page = reproduce(Request("table-memory", seeds=(0,)), tiny / "other")[-1].read_text()
    assert "| +TSA, memory | 1.5 | 2.5 | 300.0 | 90.5 | " in page
    assert "| · the paper | – | – | – | 7500 | +13.2 |" in page


def test_a_cell():
    cell = Cell((90.0, 92.0), 3, 90.5)
    assert (cell.mean, round(cell.deviation, 3), cell.difference) == (91.0, 1.414, 0.5)
    assert Cell((), 3, 90.5).mean is None
    assert Cell((90.0,), 3, None).difference is None


def test_last_selected_and_oracle_stand_in_their_places(tiny):
    request = Request("table5", on="tiny", rows=("DANN", "DANN +MI"), seeds=(0, 1))
    page = reproduce(request, tiny / "out")[-1].read_text()
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
    monkeypatch.setitem(PROTOCOLS, "tiny", replace(PROTOCOLS["tiny"], measure="mean_class_accuracy"))
    with np.load("b.npz") as file:
        x, y = file["x"], file["y"]
    few = np.flatnonzero((y > 0) | (np.arange(45) < 9))  # of other class sizes: the measures differ
    np.savez("b.npz", x=x[few], y=y[few])
    request = Request("table5", on="tiny", rows=("DANN",), seeds=(0,), columns=("A → B",))
    page = reproduce(request, tiny / "out")[-1].read_text()
    run = kept(tiny / "out", "table5-on-tiny")["runs"]["DANN | A → B | 0"]
    three = (run["mean_class_accuracy"], *(run[which]["mean_class_accuracy"] for which in ("selected", "oracle")))
    assert run["accuracy"] != run["mean_class_accuracy"]
    assert " / ".join(f"{value:.1f}" for value in three) in page
    assert "Mean of the target's class accuracies, %" in page


def drawing(home):
    """A recipe that draws by itself."""

    def draws(job, space):
        space.pictures.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2)).save(space.pictures.with_name(f"{space.pictures.name}.png"))
        return {}

    return Recipe("drawn", home, [Row("drawn", {})], columns=("A → B",), work=draws, describe=lambda results, extra: "")


def test_a_page_shows_its_own_pictures(tiny, monkeypatch):
    """Not those of the same figure on other data, nor another picture for being made by another call."""
    for name in ("tiny", "tiny-too"):
        monkeypatch.setitem(PROTOCOLS, name, PROTOCOLS["tiny"])
    monkeypatch.setitem(RECIPES, "figure-bias", drawing("tiny"))
    request = Request("figure-bias", columns=("A → B",), seeds=(1,))
    assert [p.name for p in reproduce(request, tiny / "out")[1:-1]] == ["figure-bias-A-B-1.png"]
    reproduce(replace(request, on="tiny-too", seeds=(0,)), tiny / "out")
    page = reproduce(replace(request, seeds=(0, 1)), tiny / "out")[-1].read_text()
    assert "](figure-bias.png)" in page
    assert "](figure-bias-A-B-1.png)" in page
    assert "tiny-too" not in page
    assert len([*(tiny / "out").glob("*.png")]) == 3


def test_what_is_not_here_is_said_on_the_page_for_good(tiny, monkeypatch, capsys):
    protocol = PROTOCOLS["tiny"]
    nowhere = {**protocol.tasks, "B → X": (protocol.tasks["B → C"][0], str(tiny / "nowhere.npz"))}
    monkeypatch.setitem(PROTOCOLS, "tiny", replace(protocol, tasks=nowhere))
    request = Request("table5", on="tiny", rows=("DANN",), seeds=(0,))
    told = f"Not run: 27 runs, {tiny / 'nowhere.npz'} is not here."
    assert told in reproduce(request, tiny / "out")[-1].read_text()
    assert "not run (1 run): " in capsys.readouterr().err
    for again in (replace(request, columns=("A → B",)), replace(request, only_collect=True)):
        assert told in reproduce(again, tiny / "out")[-1].read_text()


def test_a_failed_run_is_said_until_it_succeeds(tiny, monkeypatch):
    protocol = PROTOCOLS["tiny"]
    monkeypatch.setitem(PROTOCOLS, "tiny", replace(protocol, settings={**protocol.settings, "lr": 1e30}))
    request = Request("table5", on="tiny", rows=("DANN", "DANN +MI"), seeds=(0,), columns=("A → B",))
    with pytest.raises(UserError, match="no results for table5"):
        reproduce(request, tiny / "out")
    assert set(kept(tiny / "out", "table5-on-tiny")["not_run"]) == {"DANN | A → B | 0", "DANN +MI | A → B | 0"}
    monkeypatch.setitem(PROTOCOLS, "tiny", protocol)
    page = reproduce(replace(request, rows=("DANN",)), tiny / "out")[-1].read_text()
    assert "Not run: 1 run, " in page
    assert "Not run: " not in reproduce(request, tiny / "out")[-1].read_text()


def test_moons_of_each_seed_are_not_data_that_changed():
    def run(fingerprint, rows=300, images=""):
        roles = (("source", 300), ("target", rows))
        return {"data": {role: {"rows": n, "fingerprint": role + fingerprint, "images": images} for role, n in roles}}

    assert "changed" not in data_text({"DANN | moons | 1": run("a"), "DANN | moons | 2": run("b")})
    assert "changed" in data_text({"DANN | moons | 1": run("a"), "TSA | moons | 1": run("b")})
    assert data_text({"DANN | moons | 1": {}}) == ""
    shares = {"a | A → B | 0": run("a"), "b | A → B | 0": run("a", rows=1200)}
    assert data_text(shares) == "Training rows (source + target): A → B 300 + 300 to 1,200."
    assert data_text({"a | A → B | 0": run("a", 9, "28×28")}).endswith("A → B 300 of 28×28 + 9 of 28×28.")


def test_other_weights_are_another_protocol(tiny, monkeypatch):
    page = "trained with random weights, bottleneck 256"
    assert page in protocol_named("office31", weights="none").text
    mine = tiny / "mine.pth"
    mine.write_bytes(b"some weights")
    assert "backbone with the weights of mine.pth" in protocol_named("office31", True, str(mine)).text
    # A file of its own, and beside the paper's numbers only with weights that were learnt.
    home = replace(PROTOCOLS["tiny"], tasks={"A → W": PROTOCOLS["tiny"].tasks["A → B"]})
    monkeypatch.setitem(PROTOCOLS, "office31", home)
    module = sys.modules["paper.request"]
    monkeypatch.setattr(module, "protocol_named", lambda name, frozen, weights: PROTOCOLS[name])
    request = Request("table2", rows=("source-only",), seeds=(0,))
    for weights, stem, beside in (
        (None, "table2", True),
        (str(mine), "table2-weights-mine-a0c76a31", True),
        ("none", "table2-weights-none", False),
    ):
        written = reproduce(replace(request, weights=weights), tiny / "out")
        assert written[-1].name == f"{stem}.md"
        assert ("· the paper" in written[-1].read_text()) is beside


def test_frozen_has_another_protocol():
    assert protocol_named("office-home", frozen=True).settings["freeze_backbone"] is True
    assert protocol_named("office-home", frozen=True).text != protocol_named("office-home").text


def test_a_short_copy_of_a_benchmark_is_named(tmp_path, monkeypatch, capsys):
    write_classes(tmp_path / "office31/amazon/images", n=2)
    monkeypatch.setenv("TSADAPT_DATA", str(tmp_path))
    for ask in (missing, short_copy):
        ask.cache_clear()
    said = "office31:amazon has 6 images, expected 2,817"
    assert short_copy("office31:amazon") == said
    assert short_copy("office31:webcam") == short_copy("digits:uci") == ""
    config = run_config("office31:amazon", "digits:uci")
    data = _data(config, {"source": (6, "a"), "target": (9, "b")})
    assert data["data"]["source"]["short"] == said
    assert "short" not in data["data"]["target"]
    text = data_text({"DANN | A → W | 0": data, "DANN | A → W | 1": data})
    assert text.endswith(f"**On an incomplete copy, or another version: {said}.**")
    _say_short([Job("DANN", "A → W", 0, config)])
    assert capsys.readouterr().err == f"note: {said}: the copy is incomplete or another version\n"
    for ask in (missing, short_copy):
        ask.cache_clear()
