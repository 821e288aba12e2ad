"""What the pictures of tables show."""

import pytest
from paper import pictures
from paper.catalogue import RECIPES
from paper.cells import Cell
from paper.pictures import Curves, draw_curves_of_rows, draw_rows, stamp
from paper.reproduce import reproduce
from paper.request import Request
from paper.rows import STRESS, STRESS_CURVES
from PIL import Image


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were drawn, by the names of their files."""
    figures = {}
    monkeypatch.setattr(pictures, "write_figure", lambda figure, path: figures.setdefault(path, figure))
    return figures


def test_rows_with_numbers_beside_them(drawn):
    table = {"plain": {"A → B": Cell((50.0, 52.0), 3, 55.0)}, "+TSA": {"A → B": Cell((70.0,), 3)}}
    draw_rows(table, "a title", "x.png", {"cost": {"plain": 1.0, "+TSA": 2.5}})
    panels = [axis for axis in drawn["x.png"].axes if axis.get_visible()]
    assert [axis.get_title() for axis in panels] == ["A → B", "cost"]
    assert [bar.get_width() for bar in panels[1].patches] == [1.0, 2.5]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["plain", "+TSA"]
    dots = {(float(x), float(y)) for line in panels[0].lines for x, y in zip(*line.get_data(), strict=True)}
    assert {(51.0, 0.0), (70.0, 1.0), (55.0, 0.0)} <= dots
    assert "rings: the paper" in drawn["x.png"].get_suptitle()


def test_rows_as_curves(drawn):
    table = {
        "none": {"A → B": Cell((50.0,), 1)},
        "half": {"A → B": Cell((60.0, 62.0), 2, 65.0)},
        "whole": {"A → B": Cell((), 2, 75.0)},  # not run yet
    }
    curves = Curves("share, %", {"+TSA": {100: "whole", 0: "none", 50: "half"}, "+MI": {0: "none", 50: "not there"}})
    draw_curves_of_rows(table, curves, "a title", "x.png")
    (panel,) = drawn["x.png"].axes
    ours = panel.get_lines()[0]
    assert [list(values) for values in ours.get_data()] == [[0, 50], [50.0, 61.0]]
    rings = [line for line in panel.get_lines() if line.get_markerfacecolor() == "none"]
    assert sorted(zip(*rings[0].get_data(), strict=True)) == [(50, 65.0), (100, 75.0)]
    assert panel.get_xlabel() == "share, %"


@pytest.mark.parametrize(
    ("name", "panels", "x"),
    [
        ("table5", {"A → B"}, ""),
        ("table-memory", {"A → B", "statistics, MB", "peak of the process, MB"}, ""),
        ("table-samples", {"A → B", "step time, × source-only"}, ""),
        ("table-bound", {"A → B", "½ d_A, %", "λ* (oracle), %"}, ""),
        ("table-stress", {"A → B"}, "ρ, %"),
    ],
)
def test_pictures_are_of_what_their_tables_are_about(tiny, drawn, monkeypatch, name, panels, x):
    monkeypatch.setattr(
        "paper.analyses.footprint.footprint", lambda config: {"statistics_mb": 1.5, "model_mb": 2.5, "peak_mb": 300.0}
    )
    rows = tuple(row.title for row in RECIPES[name].rows[:3])
    reproduce(Request(name, on="tiny", seeds=(0, 1), columns=("A → B",), rows=rows), tiny / "out")
    (figure,) = drawn.values()
    there = [axis for axis in figure.axes if axis.get_visible()]
    assert {axis.get_title() for axis in there} == panels
    assert there[0].get_xlabel() == x
    assert (
        figure.get_suptitle()
        .replace("\n", " ")
        .startswith(f"{name}, tiny: target accuracy, %, mean ± standard deviation over 2 seeds")
    )


def test_a_banner_stands_above_a_picture_once(tmp_path):
    path = tmp_path / "x.png"
    Image.new("RGB", (200, 100), "white").save(path)

    def stamped(text, banner=""):
        stamp(path, text, banner)
        with Image.open(path) as image:
            return image.size, image.info["Description"], image.info["Comment"]

    assert stamped("made by a") == ((200, 100), "made by a", "")
    assert stamped("made by a", "quick") == ((200, 126), "made by a", "quick")
    assert stamped("made by b", "quick") == ((200, 126), "made by b", "quick")


def test_every_row_of_the_stress_test_is_on_a_curve():
    assert {title for curve in STRESS_CURVES.values() for title in curve.values()} == {row.title for row in STRESS}
    shares = {row.title: 100 * row.settings.get("target_share", 1.0) if row.settings else 0 for row in STRESS}
    assert all(shares[title] == share for curve in STRESS_CURVES.values() for share, title in curve.items())
