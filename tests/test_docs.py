"""Every Python block of the README and the documentation runs, block after block of a file in one namespace."""

import re
from pathlib import Path

import pytest

from tsadapt.objectives.methods import METHODS
from tsadapt.report.tables import PAGES as MADE
from tsadapt.report.tables import fill, methods_table, validators_table
from tsadapt.selection.select import selectors

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
TARGET = re.compile(r"^(\w+):(?: |$)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    if page.name == "README.md":
        assert blocks
    namespace = {"__name__": "documentation"}
    for block in blocks:
        exec(compile(block, str(page), "exec"), namespace)


@pytest.mark.parametrize("name", MADE)
def test_tables_are_those_of_the_registries(name):
    page = (ROOT / name).read_text(encoding="utf-8")
    assert fill(page, "make docs", MADE[name]()) == page, "run: make docs"


def test_the_tables_have_everything():
    assert methods_table().count("\n| `") == len([*METHODS])
    assert validators_table().count("\n| `") == len(selectors())
    with pytest.raises(ValueError, match="no place"):
        fill("a page", "make docs", "a table")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_links_exist(page):
    text = page.read_text(encoding="utf-8")
    targets = set(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    assert set(re.findall(r"\bmake ([a-z]+)\b", text)) <= targets
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (page.parent / link).exists(), link
