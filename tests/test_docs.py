"""Every Python block of the README and the documentation runs, and what pages say of files and numbers is true."""

import re
from pathlib import Path

import pytest

from tsadapt.objectives.base import METHODS, SOURCE_TERMS, TARGET_TERMS
from tsadapt.report.tables import PAGES as MADE
from tsadapt.report.tables import fill, terms_tables, validators_table
from tsadapt.selection.select import selectors

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
TARGET = re.compile(r"^(\w+):(?: |$)", re.MULTILINE)
REGISTRIES = (SOURCE_TERMS, TARGET_TERMS, METHODS)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def _registries_as_before():
    before = [{*registry} for registry in REGISTRIES]
    yield
    for registry, names in zip(REGISTRIES, before, strict=True):
        for name in {*registry} - names:
            registry.forget(name)


@pytest.mark.usefixtures("_registries_as_before")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_run(page, tmp_path, monkeypatch):
    """Blocks of one page share a namespace, one after the other."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path / "cache"))
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    namespace = {"__name__": "documentation"}
    for block in blocks:
        exec(compile(block, str(page), "exec"), namespace)


def test_pages_that_teach_code_have_blocks():
    for name in ("README.md", "docs/python.md", "docs/extending.md", "docs/own-loop.md", "docs/embeddings.md"):
        assert BLOCK.findall((ROOT / name).read_text(encoding="utf-8")), name


@pytest.mark.parametrize("name", MADE)
def test_tables_are_those_of_the_registries(name):
    page = (ROOT / name).read_text(encoding="utf-8")
    assert fill(page, "make docs", MADE[name]()) == page, "run: make docs"


def test_the_tables_have_everything():
    assert terms_tables().count("\n| `") == sum(len([*registry]) for registry in REGISTRIES)
    assert validators_table().count("\n| `") == len(selectors())
    with pytest.raises(ValueError, match="no place"):
        fill("a page", "make docs", "a table")


def test_the_readme_is_short_and_its_table_is_what_was_measured():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 140
    measured = (ROOT / "paper/results/embeddings.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \|(?: \d+\.\d(?: ± \d+\.\d)? \|)+$", readme, re.MULTILINE)
    assert len(rows) == 6
    for row in rows:
        assert f"\n{row}\n" in measured
    worth = (ROOT / "paper/results/preset.md").read_text(encoding="utf-8")
    gains = re.findall(r"[+−]\d\.\d ± \d\.\d", readme)
    assert len(gains) == 12
    for gain in gains:
        assert gain.replace("−", "-") in worth


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_links_exist(page):
    text = page.read_text(encoding="utf-8")
    targets = set(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    assert set(re.findall(r"\bmake ([a-z]+)\b(?= {2,}#|`)", text)) <= targets
    for link, _, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(#?)([^)]*)\)", text):
        file = page.parent / link if link else page
        assert file.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}, anchor
