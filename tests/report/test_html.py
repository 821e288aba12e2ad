"""The page as text: bounded, escaped, complete without a network, and plain about what it does not know."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from tests.report.conftest import NASTY

from tsadapt.cli import main
from tsadapt.data.doctor import Finding
from tsadapt.data.images import ImageRows
from tsadapt.report import html
from tsadapt.report.charts import drawn
from tsadapt.report.collect import collect_run
from tsadapt.report.html import render, write_page
from tsadapt.report.page import Curve, Interval, Page, Rows, RunPage, Side, Trusted
from tsadapt.report.thumbnails import Album
from tsadapt.report.verdict import verdict
from tsadapt.runs.folder import RunFolder


class Reader(HTMLParser):
    """The tags, attributes and scripts of a page, as a browser takes them apart."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.addresses = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "action", "xlink:href")]
        self.scripts += [(name, value) for name, value in attrs if name.startswith("on")]


def made(rows=50, classes=("ant", "bee"), pictures=None, kind="row", **fields):
    """A run as `collect` would give it."""
    rng = np.random.default_rng(0)
    guess = rng.integers(0, len(classes), rows)
    shares = np.bincount(guess, minlength=len(classes)) / rows
    confidence = rng.uniform(0.5, 1, rows)
    names = tuple(f"row {i}" for i in range(rows))
    return RunPage(
        "run", "runs/run", "tsa + mi", 10, 10, classes, Side("a", 20, shares), Side("b", rows, shares),
        Rows(names, guess, (guess + 1) % len(classes), confidence, pictures=pictures), kind,
        **fields,
    )  # fmt: skip


def page_of(*runs):
    return Page("a → b", runs, command="tsadapt report runs/run", version="0")


def test_nothing_is_loaded_and_nothing_runs_but_its_own_script(several_page, photos_page):
    text = render(replace(several_page, runs=(*several_page.runs, *photos_page.runs)))
    found = Reader(text)
    assert found.scripts == []  # no onclick, onerror, …
    assert found.tags.count("script") == 2
    assert all(address.startswith(("data:", "#")) for address in found.addresses)
    assert not {"iframe", "object", "embed", "base"} & {*found.tags}
    assert re.search(r"script-src 'sha256-[^']+'", text)


def test_names_of_classes_and_files_are_escaped_everywhere(several_page, photos_page):
    text = render(replace(several_page, runs=(*several_page.runs, *photos_page.runs)))
    for name in (*NASTY, "<b onclick", "<i>'\""):
        if "<" in name:
            assert name not in text
    assert text.count("</script>") == 2
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert data["runs"][0]["classes"] == [*NASTY]


def test_control_characters_are_spelt_out(tmp_path):
    run = made(classes=("a\x1b[31m", "b\u202e\udc80"))
    write_page(page_of(run), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "a\\x1b[31m" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)


def test_the_file_is_bounded(tmp_path, monkeypatch):
    noise = torch.from_numpy(np.random.default_rng(0).integers(0, 255, (400, 3, 70, 70), dtype=np.uint8))
    run = made(400, pictures=ImageRows(noise), kind="image")
    monkeypatch.setattr(html, "MOST_BYTES", 450_000)
    size = write_page(page_of(run), tmp_path / "page.html")
    assert size == (tmp_path / "page.html").stat().st_size <= 450_000
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert 20 < text.count("data:image/webp") < 400


def test_thumbnails_stay_within_their_budget():
    images = ImageRows(torch.randint(0, 255, (50, 3, 100, 100), dtype=torch.uint8))
    album = Album(20_000)
    keys = [album.add("t", images, row, 80) for row in range(50)]
    assert sum(map(len, album.pictures.values())) <= 20_000
    assert keys[0] is not None
    assert keys[-1] is None
    left = album.left
    assert album.add("t", images, 0, 80) == keys[0]
    assert album.left == left


def test_the_most_doubtful_come_first_and_every_class_is_there():
    rng = np.random.default_rng(0)
    run = made(3000, ("ant", "bee", "rare"))
    guess = np.zeros(3000, int)
    guess[-5:] = 2
    confidence = np.sort(rng.uniform(0.3, 0.9, 3000))
    run = replace(run, rows=replace(run.rows, guess=guess, confidence=confidence))
    text = render(page_of(run))
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])
    tiles = data["runs"][0]["tiles"]
    assert [tile["name"] for tile in tiles[:3]] == ["row 0", "row 1", "row 2"]
    assert [tile["name"] for tile in tiles if tile["guess"] == 2] == [f"row {i}" for i in range(2995, 3000)]
    assert len(tiles) == 1500
    assert sum(tile["doubtful"] for tile in tiles) == 300


@pytest.mark.parametrize(
    ("fields", "first", "second"),
    [
        ({}, "is not known", "least sure"),
        ({"trusted": Trusted(Interval(0.9, 0.85, 0.93), doubtful=np.arange(50) < 3)}, "An estimated 90 %", "3 of them"),
        ({"trusted": Trusted(doubtful=np.zeros(50, bool))}, "is not known", "None of them is doubtful"),
        ({"trusted": Trusted(doubtful=np.arange(50) < 1)}, "is not known", "1 of them is doubtful: check it first, it"),
        ({"source_accuracy": 0.3, "source_reference": 0.9}, "is not known", "Do not use them yet"),
    ],
    ids=["unknown", "estimated", "sure", "one", "failed"],
)
def test_the_verdict_is_two_sentences(fields, first, second):
    said = verdict(made(**fields))
    assert first in said[0]
    assert second in said[1]


def test_predicted_shares_far_from_the_sources_are_named():
    run = made(rows=100)
    run = replace(run, source=Side("a", 20, np.array([0.1, 0.9])), target=Side("b", 100, np.array([0.8, 0.2])))
    assert "ant: 80 % instead of 10 %" in verdict(run)[1]


def test_without_an_estimate_the_softmax_is_said_to_be_none():
    said = "There is no estimate of the accuracy here"
    assert said in render(page_of(made()))
    right = np.linspace(0, 1, 50)
    trusted = Trusted(
        Interval(0.9, 0.85, 0.93), right, right < 0.5, 0.5, shares={"ant": Interval(0.5, 0.4, 0.6)}, notes=("seen",)
    )
    text = render(page_of(made(trusted=trusted, findings=(Finding("warning", "tiny", "few <rows>"),))))
    assert said not in text
    for part in ("estimated accuracy", "85 to 93 %, without labels", "probability of being right below 50 %", "whisker",
                 "target, estimated", "few &lt;rows&gt;"):  # fmt: skip
        assert part in text, part


def test_the_first_screen_says_what_was_done_with_what():
    text = render(page_of(made(label="strong", held=7, source_accuracy=0.9)))
    assert "(and 7 held out) to 50 new rows, by strong (tsa + mi)." in text
    assert "on 7 held-out source rows" in text
    plain = replace(made(label="source-only"), objective="source-only")
    assert "learned from 20 labelled rows and used on 50 new rows as it is, by source-only." in render(page_of(plain))
    assert "on the source rows it learned from" in render(page_of(made(source_accuracy=0.9)))
    meaning = "A prediction is doubtful if its probability of being right is below 50%: 5 <rows> are."
    right = np.linspace(0.2, 1, 50)
    trusted = Trusted(Interval(0.9, 0.8, 0.95), right, right < 0.5, 0.5, meaning=meaning)
    assert "5 &lt;rows&gt; are." in render(page_of(made(trusted=trusted)))
    curves = (Curve("a", "more", (1, 2), (0.0, 1.0)),)
    assert "1 more curve<" in render(page_of(made(curves=curves)))


def test_pages_of_extremes_can_be_made():
    many = made(30, tuple(f"class {c}" for c in range(900)))
    assert "876 more classes" not in render(page_of(many))
    assert "more classes of 876" in render(page_of(many))
    assert "1 prediction" in render(page_of(made(1, ("only",))))


def test_a_curve_is_fitted_into_its_chart():
    line = drawn(Curve("mi", "terms", tuple(range(1000)), tuple(np.linspace(-1, 1, 1000))))
    assert line.zero == pytest.approx(60)
    assert len(line.places) == 240
    assert (line.places[0][:2], line.places[-1][:2]) == ((0, 120), (300, 0))
    assert drawn(Curve("flat", "terms", (5,), (2.0,))).path == "M0 60"


def test_the_command_writes_a_page_beside_the_run(several, out, capsys, monkeypatch):
    assert main(["report", str(several[1])]) == 0
    page = several[1] / "report.html"
    assert str(page) in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert f"tsadapt report {several[1]}" in text
    assert "Measured on 150 labelled target rows" in text
    monkeypatch.chdir(out)
    assert main(["report", *map(str, several)]) == 0
    assert (out / "report.html").read_text(encoding="utf-8").count("<article") == 3
    assert main(["report", str(several[0]), "--out", str(out)]) == 2
    assert "is a folder" in capsys.readouterr().err
    assert main(["report", str(out / "none")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_how_to_run_it_again_is_complete(several):
    found = collect_run(RunFolder(several[2]))
    text = render(page_of(found))
    assert found.config == (several[2] / "config.toml").read_text(encoding="utf-8")
    assert "tsadapt fit --config config.toml" in text
    assert "torch 2." in text


def test_what_is_odd_about_classes_and_what_the_estimate_is_worth_stand_on_the_first_screen():
    odd, worth = "82% of the target seem to be <ant>.", "Such estimates were 4 points off on average."
    trusted = Trusted(estimate=Interval(0.9, 0.8, 0.95), notes=(odd,), worth=worth)
    text = render(page_of(made(trusted=trusted)))
    first = text.partition("</section>")[0]
    assert "82 % of the target seem to be &lt;ant&gt;." in first
    assert worth in first
    assert text.count("seem to be") == 1
