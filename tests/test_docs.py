"""Every Python block of the README and the documentation runs, block after block of a file in one namespace."""

import re
from pathlib import Path

import pytest

from tsadapt.methods import METHODS
from tsadapt.report.tables import methods_table, with_table

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


def test_the_table_of_methods_is_that_of_the_registry():
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert with_table(page) == page, "run: make docs"
    assert methods_table().count("\n| `") == len([*METHODS])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_links_exist(page):
    text = page.read_text(encoding="utf-8")
    targets = set(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    assert set(re.findall(r"\bmake ([a-z]+)\b", text)) <= targets
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (page.parent / link).exists(), link
