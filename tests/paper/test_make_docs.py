import json
import shutil
from pathlib import Path

import pytest
from paper.make_docs import make_pages
from paper.overview import overview
from PIL import Image

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "paper/results"


def test_the_page_of_results_is_made_of_the_results():
    made = overview(RESULTS, ROOT / "docs/results.md")
    assert (ROOT / "docs/results.md").read_text(encoding="utf-8") == made
    assert "](../paper/results/figure-moons.png)" in made


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_result_is_made_of_its_numbers(path, tmp_path, monkeypatch):
    """Its page, numbers and pictures come out the same from its JSON, without data and without training."""
    monkeypatch.setenv("TSADAPT_DATA", str(tmp_path / "nothing"))
    said = json.loads(path.read_text(encoding="utf-8"))
    for file in RESULTS.glob(f"{path.stem}*"):
        shutil.copy(file, tmp_path)
    assert said["command"].startswith("python -m paper ")
    make_pages(tmp_path)
    for suffix in (".md", ".json"):
        assert (tmp_path / f"{path.stem}{suffix}").read_text() == path.with_suffix(suffix).read_text()
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    with Image.open(path.with_suffix(".png")) as picture:
        assert picture.info["Description"] in page
    hashes = {run["hash"] for run in said["runs"].values()}
    assert hashes >= set(said["settings"]["of_each"])
    one = next(iter(said["settings"]["of_each"].values()))
    assert {"source", "target", "method", "lr", "seed"} <= {*one, *said["settings"]["of_all"]}


def test_order_links_and_summary(tmp_path):
    results, page = tmp_path / "results", tmp_path / "docs" / "page.md"
    results.mkdir()
    (results / "table5-on-pacs.md").write_text("## table5\n\n![table5](table5-on-pacs.png)\n")
    (results / "table4.md").write_text(
        "## table4\n\n[all](table4.json), [shared](table5.md), [else](https://x.org/a.json)\n"
    )
    accuracy = {
        "DANN | M → U | 0": 80, "DANN | M → U | 1": 10, "DANN +MI | M → U | 0": 90, "DANN +TSA | M → U | 0": 89,
        "DANN | U → M | 0": 70, "DANN +MI | U → M | 0": 80, "DANN +TSA | U → M | 0": 83, "JADA | M → U | 0": 70,
    }  # fmt: skip
    # Of seed 2 there are runs with settings that the table no longer has.
    old = {f"{row} | U → M | 2": 1 for row in ("DANN", "DANN +MI", "DANN +TSA")}
    for stem, runs in (("table4", accuracy | old), ("table5-on-pacs", {"DANN | A → B | 0": 5})):
        said = {
            "name": stem.partition("-on-")[0],
            "data": "digits",
            "protocol": "as ever",
            "settings": {"of_each": {"new": {}}},
            "runs": {k: {"accuracy": v, "hash": "old" if k in old else "new"} for k, v in runs.items()},
        }
        (results / f"{stem}.json").write_text(json.dumps(said))
    (results / "notes.md").write_text("not ours")
    text = overview(results, page)
    assert text.index("## table4") < text.index("## table5")
    assert "[all](../results/table4.json), [shared](../results/table5.md), [else](https://x.org/a.json)" in text
    assert "not ours" not in text
    assert "Not measured yet: table1 (Office-Home" in text
    assert "+TSA is above +MI in 1 of 1 cases." in text
    assert (
        "| table4, digits (range of settings chosen by an oracle) | DANN | 2 | 75.0 | 85.0 | 86.0 | +1.0 ± 2.8 |"
        in text
    )  # +3 and -1


def test_the_summary_is_of_the_most_runs_under_each_protocol(tmp_path):
    def write(stem, data, protocol, less, measure="accuracy", seeds=1):
        runs = {
            f"DANN{added} | A → B | {seed}": {measure: 50 + value, "hash": "now"}
            for seed in range(seeds)
            for added, value in (("", 0), (" +MI", 10), (" +TSA", 10 + less))
        }
        said = {"name": "table5", "data": data, "protocol": protocol, "runs": runs}
        said["settings"] = {"of_each": {"now": {}}}
        (tmp_path / f"{stem}.json").write_text(json.dumps(said))
        (tmp_path / f"{stem}.md").write_text(f"## {stem}\n")

    write("a-small-figure", "Office-31", "trained", 5)
    write("b-table", "Office-31", "trained", -1, seeds=3)
    write("c-frozen", "Office-31", "frozen", 2)
    write("d-classes", "VisDA-2017", "trained", 3, measure="mean_class_accuracy")
    write("e-moons", "two moons", "trained", 1)
    text = overview(tmp_path, tmp_path / "page.md")
    assert "+TSA is above +MI in 3 of 4 cases." in text
    assert "| b-table, Office-31 | DANN | 3 | 50.0 | 60.0 | 59.0 | -1.0 ± 0.0 |" in text
    assert "| c-frozen, Office-31 | DANN | 1 | 50.0 | 60.0 | 62.0 | +2.0 |" in text
    assert "| d-classes, VisDA-2017 | DANN | 1 | 50.0 | 60.0 | 63.0 | +3.0 |" in text
    assert "| e-moons, two moons (settings chosen by an oracle) | DANN | 1 |" in text
    assert "a-small-figure," not in text
