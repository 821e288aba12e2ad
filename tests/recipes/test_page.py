from pathlib import Path

from tsadapt.recipes.page import results_page

ROOT = Path(__file__).parent.parent.parent


def test_the_page_of_results_is_made_of_the_results():
    made = results_page(ROOT / "experiments/results/paper", ROOT / "docs/results.md")
    assert (ROOT / "docs/results.md").read_text(encoding="utf-8") == made
    assert "](../experiments/results/paper/figure-moons.png)" in made


def test_order_and_links(tmp_path):
    results, page = tmp_path / "results", tmp_path / "docs" / "page.md"
    results.mkdir()
    (results / "table5-on-pacs.md").write_text("## table5\n\n![table5](table5-on-pacs.png)\n")
    (results / "table4.md").write_text("## table4\n\n[all](table4.json), [else](https://x.org/a.json)\n")
    (results / "notes.md").write_text("not ours")
    text = results_page(results, page)
    assert text.index("## table4") < text.index("## table5")
    assert "[all](../results/table4.json), [else](https://x.org/a.json)" in text
    assert "not ours" not in text
