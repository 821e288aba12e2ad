import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tsadapt.cli import main
from tsadapt.recipes.page import results_page

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "experiments/results/paper"


def test_the_page_of_results_is_made_of_the_results():
    made = results_page(RESULTS, ROOT / "docs/results.md")
    assert (ROOT / "docs/results.md").read_text(encoding="utf-8") == made
    assert "](../experiments/results/paper/figure-moons.png)" in made


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_result_is_made_of_its_numbers(path, tmp_path, monkeypatch):
    """Its page, numbers and pictures come out the same from its JSON, without data and without training."""
    monkeypatch.setenv("TSADAPT_DATA", str(tmp_path / "nothing"))
    said = json.loads(path.read_text(encoding="utf-8"))
    for file in RESULTS.glob(f"{path.stem}*"):
        shutil.copy(file, tmp_path)
    command = said["command"].split()
    assert command[:2] == ["tsadapt", "reproduce"]
    assert main([*command[1:], "--only-collect", "--out", str(tmp_path)]) == 0
    for suffix in (".md", ".json"):
        assert (tmp_path / f"{path.stem}{suffix}").read_text() == path.with_suffix(suffix).read_text()
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    with Image.open(path.with_suffix(".png")) as picture:
        assert picture.info["Description"] in page
    hashes = {run["hash"] for run in said["runs"].values()}
    assert hashes >= set(said["settings"]["of_each"])
    one = next(iter(said["settings"]["of_each"].values()))
    assert {"source", "target", "method", "lr", "seed"} <= {*one, *said["settings"]["of_all"]}


def test_order_and_links(tmp_path):
    results, page = tmp_path / "results", tmp_path / "docs" / "page.md"
    results.mkdir()
    (results / "table5-on-pacs.md").write_text("## table5\n\n![table5](table5-on-pacs.png)\n")
    (results / "table4.md").write_text("## table4\n\n[all](table4.json), [else](https://x.org/a.json)\n")
    for name in ("table4", "table5"):
        (results / f"{name}{'-on-pacs' if name == 'table5' else ''}.json").write_text(json.dumps({"name": name}))
    (results / "notes.md").write_text("not ours")
    text = results_page(results, page)
    assert text.index("## table4") < text.index("## table5")
    assert "[all](../results/table4.json), [else](https://x.org/a.json)" in text
    assert "not ours" not in text
