"""The page in Chromium: no errors, no requests, filters and hover, sorting, no JavaScript, phones and print."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.report.conftest import NASTY

from tsadapt.report.collect import collect
from tsadapt.report.html import write_page
from tsadapt.report.page import Interval, Trusted
from tsadapt.report.result import Result

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip
FOUND = next(filter(None, map(shutil.which, NAMES)), None)

pytestmark = [
    pytest.mark.skipif(FOUND is None, reason=f"no {' or '.join(NAMES)} is installed, and `make browser` got none"),
    pytest.mark.xdist_group("browser"),
]


ON_TOP = """kind => {
  for (const point of document.querySelectorAll(`#r0 .plane .pt.${kind}`)) {
    const box = point.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
    if (document.elementFromPoint(x, y) === point) return [x, y];
  }
}"""
"""Where a point of a kind can be pointed at, as far as it can be seen."""


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=FOUND, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(several_page, photos_page, unlabelled, out):
    """A page of several runs, one of photographs, and one with trust, by name."""
    right = np.linspace(0.2, 1, 150)
    shares = {name: Interval(0.33, 0.2, 0.45) for name in NASTY}
    trusted = Trusted(Interval(0.9, 0.84, 0.95), right, right < 0.5, 0.5, shares=shares)
    made = {
        "several": several_page, "photos": photos_page,
        "trusted": collect([unlabelled], results={unlabelled: Result(unlabelled, trusted)}),
    }  # fmt: skip
    for name, page in made.items():
        write_page(page, out / f"{name}.html")
    return {name: out / f"{name}.html" for name in made}


class Opened:
    """A page that was opened, with what it said and asked for."""

    def __init__(self, browser, path: Path, **options):
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **options}
        )
        self.context.set_default_timeout(120_000)  # many tests at once on few cores
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()

    def count(self, selector):
        return self.page.locator(selector).count()


@pytest.mark.parametrize("name", ["several", "photos", "trusted"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_loads_without_errors_requests_or_a_sideways_scroll(browser, pages, name, width, scheme):
    with Opened(browser, pages[name], viewport={"width": width, "height": 800}, color_scheme=scheme) as opened:
        opened.page.mouse.wheel(0, 4000)
        assert opened.said == []
        assert [url for url in opened.asked if not url.startswith("data:")] == [pages[name].as_uri()]
        assert opened.page.evaluate("document.documentElement.scrollWidth") == width
        assert opened.page.evaluate("window.broken") is None
        assert opened.count("b[onclick], img[onerror], [onload]") == 0
        colour = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (colour == "rgb(255, 255, 255)") == (scheme == "light")


def test_the_theme_can_be_chosen(browser, pages):
    with Opened(browser, pages["photos"], color_scheme="light") as opened:
        seen = []
        for _ in range(3):
            opened.page.click("#theme")
            said = opened.page.inner_text("#theme")
            seen.append((said, opened.page.evaluate("getComputedStyle(document.body).backgroundColor")))
        assert [text for text, _ in seen] == ["Theme: light", "Theme: dark", "Theme: auto"]
        assert seen[0][1] == seen[2][1] != seen[1][1]


def test_predictions_are_filtered_by_class_and_doubt(browser, pages):
    with Opened(browser, pages["trusted"]) as opened:
        page = opened.page
        assert opened.count("#r0 tr.tile") == 40
        assert page.inner_text("#r0 .count") == "40 of 150"
        page.check("#r0 .by-doubt")
        assert page.inner_text("#r0 .count") == "40 of 56"
        assert opened.count("#r0 tr.tile.doubtful") == 40
        page.click("#r0 .more")
        assert opened.count("#r0 tr.tile") == 56
        assert page.is_hidden("#r0 .more")
        page.uncheck("#r0 .by-doubt")
        page.select_option("#r0 .by-class", index=1)
        named = page.locator("#r0 .by-class option").nth(1).inner_text()
        assert named.startswith(NASTY[0])
        assert {*page.locator("#r0 tr.tile td:nth-child(2)").all_inner_texts()} == {NASTY[0]}
        right = [float(text.strip("<> %")) for text in page.locator("#r0 tr.tile td:nth-child(3)").all_inner_texts()]
        assert right == sorted(right)


def test_a_photograph_is_enlarged_and_turned(browser, pages):
    with Opened(browser, pages["photos"]) as opened:
        page = opened.page
        assert opened.count("#r0 button.tile img") == 24
        assert page.evaluate("[...document.images].filter(i => i.src && !i.naturalWidth && !i.hidden).length") == 0
        page.locator("#r0 button.tile").first.click()
        first = page.inner_text("#large-text")
        assert page.locator("#r0 .tile .name").first.inner_text() in first  # also on paper, and without a click
        assert "<i>'\".png" in first
        assert page.is_disabled("#large-before")
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#large-text") != first
        page.keyboard.press("Escape")
        assert not page.evaluate("document.getElementById('large').open")
        assert "9-broken.png" in page.inner_text("#r0-predictions")


def test_points_of_the_map_say_what_they_are(browser, pages):
    with Opened(browser, pages["photos"]) as opened:
        page = opened.page
        for kind, said in (("t", "predicted, softmax"), ("s", "source, as labelled")):
            page.locator("#r0 .plane").last.scroll_into_view_if_needed()
            page.mouse.move(*page.evaluate(ON_TOP, kind))
            assert said in page.inner_text("#tip")
            assert page.evaluate("document.querySelector('#tip img').naturalWidth") > 0
        page.mouse.move(2, 2)
        assert page.is_hidden("#tip")
        page.select_option("#r0 .by-hue", "class")
        assert page.is_visible("#r0 .hues")
        page.select_option("#r0 .by-hue", "1")
        shown = page.locator("#r0 .plane .pt:not(.dim)").evaluate_all("all => [...new Set(all.map(p => p.dataset.l))]")
        assert shown == ["1"]
        page.locator("#r0 .chart svg").first.hover()
        assert "step" in page.inner_text("#tip")


def test_the_comparison_sorts_and_leads_to_the_runs(browser, pages):
    with Opened(browser, pages["several"]) as opened:
        page = opened.page
        heads = page.locator(".sortable thead th").all_inner_texts()
        place = next(i for i, head in enumerate(heads) if head.startswith("measured accuracy"))

        def column():
            cells = page.locator(f".sortable tbody tr td:nth-child({place + 1})").all_inner_texts()
            return [float(text.strip(" %")) for text in cells]

        for order in ("ascending", "descending"):
            page.locator(".sortable thead button").nth(place).click()
            assert page.locator(".sortable thead th").nth(place).get_attribute("aria-sort") == order
            assert column() == sorted(column(), reverse=order == "descending")
        assert opened.count("article:not([hidden])") == 1
        page.locator(".sortable tbody a[href='#r2']").click()
        assert page.is_visible("#r2")
        assert page.is_hidden("#r0")
        page.locator("[role=tab]").first.click()
        page.keyboard.press("ArrowRight")
        assert page.is_visible("#r1")
        assert page.locator("[role=tab][aria-selected=true]").inner_text().startswith("mi")


@pytest.mark.parametrize("name", ["several", "photos", "trusted"])
def test_it_is_readable_without_javascript(browser, pages, name):
    with Opened(browser, pages[name], java_script_enabled=False) as opened:
        page = opened.page
        assert page.locator("article").count() == page.locator("article:visible").count()
        assert opened.count(".js-only:visible") == 0
        for part in ("Class shares", "Predictions to check", "Both domains in a plane", "Training", "Run it again"):
            assert page.get_by_role("heading", name=part).first.is_visible(), part
        assert page.locator("#r0 .tile").first.is_visible()
        assert opened.count("#r0 .plane circle") > 20
        if name == "photos":
            assert opened.count("#r0 .tile img[src^='data:image']") == 24


def test_rows_with_and_without_a_label_are_told_apart(browser, unlabelled, out):
    truth = np.full(150, -1)
    truth[:60] = np.arange(60) % 3
    right = np.linspace(0.2, 1, 150)
    trusted = Trusted(Interval(0.9, 0.84, 0.95), right, right < 0.5, 0.5, truth=truth)
    page = collect([unlabelled], results={unlabelled: Result(unlabelled, trusted)})
    assert (page.runs[0].measured.rows, page.runs[0].measured.where) == (60, "labels that were given to measure with")
    file = out / "few.html"
    write_page(page, file)
    for script in (True, False):
        with Opened(browser, file, java_script_enabled=script) as opened:
            if script:
                opened.page.click("#r0 .more")
            cells = opened.page.locator("#r0 tr.tile td:nth-child(5)").all_inner_texts()
            given = [int(text) for text in truth[: len(cells)]]
            guess = page.runs[0].rows.guess.tolist()
            assert cells == [
                "" if y < 0 else "right" if y == g else page.runs[0].classes[y]
                for y, g in zip(given, guess, strict=False)
            ]


def test_shares_and_their_interval_lie_on_each_other(browser, pages):
    """On a phone as well, where numbers take two lines."""
    for width in (1280, 390):
        with Opened(browser, pages["trusted"], viewport={"width": width, "height": 800}) as opened:
            for row in opened.page.locator("#r0 .shares tbody tr").all()[:3]:
                bar, line = (row.locator(which).bounding_box() for which in (".b.target", ".whisker"))
                assert bar["y"] <= line["y"]
                assert line["y"] + line["height"] <= bar["y"] + bar["height"] + 0.1


def test_print_is_light_and_leaves_controls_out(browser, pages):
    with Opened(browser, pages["several"], color_scheme="dark") as opened:
        opened.page.emulate_media(media="print", color_scheme="dark")
        assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        for selector in ("#theme", ".controls", ".tabs", ".within", ".more"):
            assert opened.count(f"{selector}:visible") == 0, selector
        assert opened.count("article:visible") == 3
        cut = "[...document.querySelectorAll('pre')].filter(p => p.scrollWidth > p.clientWidth).length"
        assert opened.page.evaluate(cut) == 0  # paper does not scroll
        assert len(opened.page.pdf()) > 10_000
