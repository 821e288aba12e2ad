"""Tables in Markdown pages, between marks that name the command that makes them; never typed by hand.

`python -m tsadapt.report.tables` (`make docs`) makes those of docs/methods.md, docs/target-terms.md and
docs/selection.md anew.
"""

import re
import textwrap
from pathlib import Path

from tsadapt.report.terms import GROUPS, Facts, facts
from tsadapt.selection import VALIDATORS
from tsadapt.selection.select import CONSENSUS, CONSENSUS_FAILS, CONSENSUS_WHAT

__all__ = ["PAGES", "fill", "target_paragraphs", "terms_tables", "validators_table"]


def fill(page: str, command: str, table: str) -> str:
    r"""A page with what stands between the marks of a command replaced by a table.

    >>> fill("<!-- made by `x` -->\nold\n<!-- end -->", "x", "new")
    '<!-- made by `x` -->\nnew\n<!-- end -->'
    """
    place = re.compile(rf"(<!-- made by `{re.escape(command)}` -->\n).*?(<!-- end -->)", re.DOTALL)
    if not place.search(page):
        raise ValueError(f"the page has no place for what `{command}` makes")
    return place.sub(lambda match: f"{match[1]}{table}\n{match[2]}", page)


def terms_tables() -> str:
    """Every source term, target term and method in a table each; then what source terms and methods assume."""
    tables = [_table(group) for group in GROUPS]
    source_terms, methods = facts("source terms"), facts("methods")
    one = [found for found in methods if found.kind.startswith("one backward")]
    several = [found for found in methods if found not in one]
    parts = {"Source terms": source_terms, "Methods of one backward pass": one, "Methods that alternate": several}
    return "\n\n".join([*tables, *(f"## {title}\n\n{_paragraphs(found)}" for title, found in parts.items())])


def target_paragraphs() -> str:
    """What every target term assumes, when it helps, and when it hurts."""
    return _paragraphs(facts("target terms"))


def _table(group: str) -> str:
    """A group at a glance."""
    kinds = ("kind",) if any(found.kind for found in facts(group)) else ()
    head = (group.removesuffix("s"), "what it does", "year", *kinds, "needs", "+TSA")
    rows = [head, ("---",) * len(head)]
    for found in facts(group):
        kind = (found.kind,) if kinds else ()
        rows.append((f"`{found.name}`", found.summary, found.year, *kind, found.needs, found.composes))
    return "\n".join(f"| {' | '.join(cell or '–' for cell in row)} |" for row in rows)


def _paragraphs(terms: list[Facts]) -> str:
    """For every term what a practitioner should know, and below it where it is from, what it needs, costs and has."""
    made = []
    for found in terms:
        details = {
            "": found.paper, "Needs": found.needs, "Cost": found.cost, "With TSA": found.composes,
            "Terms": found.terms, "Settings": found.settings,
        }  # fmt: skip
        said = " ".join(f"{what}{': ' if what else ''}{text}." for what, text in details.items() if text)
        made += [_wrapped(f"**`{found.name}`**: {found.summary} {found.practice}"), _wrapped(f"*{said}*")]
    return "\n\n".join(made)


def _wrapped(text: str) -> str:
    return textwrap.fill(text.strip(), 130, break_long_words=False, break_on_hyphens=False)


def validators_table() -> str:
    """Every validator: what it is, which way is better, its range, what it needs, and when not to trust it."""
    lines = ["| `--by` | what it is | better | range | needs | fails |", "|---|---|---|---|---|---|"]
    lines.append(f"| `{CONSENSUS}` | {CONSENSUS_WHAT} | lower | 1 … | a pool | {CONSENSUS_FAILS} |")
    for name in VALIDATORS:
        v = VALIDATORS[name]
        needs = "`--holdout`" if v.needs_holdout else "a pool" if v.alone is None else "–"
        cells = (f"`{name}`", v.what, "higher" if v.higher else "lower", v.span, needs, v.fails)
        lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(lines)


PAGES = {
    "docs/methods.md": terms_tables,
    "docs/target-terms.md": target_paragraphs,
    "docs/selection.md": validators_table,
}

if __name__ == "__main__":
    for name, made in PAGES.items():
        path = Path(name)
        path.write_text(fill(path.read_text(encoding="utf-8"), "make docs", made()), encoding="utf-8")
