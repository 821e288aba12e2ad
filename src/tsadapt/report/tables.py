"""Tables in Markdown pages, between marks that name the command that makes them; never typed by hand.

`python -m tsadapt.report.tables` (`make docs`) makes those of docs/methods.md and docs/selection.md anew.
"""

import re
from pathlib import Path
from typing import Any

from tsadapt.objectives.base import METHODS, SOURCE_TERMS, TARGET_TERMS, Term
from tsadapt.registry import Registry
from tsadapt.selection import VALIDATORS
from tsadapt.selection.select import CONSENSUS, CONSENSUS_FAILS, CONSENSUS_WHAT

__all__ = ["PAGES", "fill", "terms_tables", "validators_table"]


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
    """Every registered source term, target term and method, a table each."""
    return "\n\n".join(
        [_terms_table("source term", SOURCE_TERMS), _terms_table("target term", TARGET_TERMS), _methods()]
    )


def _terms_table(kind: str, registry: Registry[Any]) -> str:
    """What each term does, where it comes from, and its settings."""
    lines = [f"| {kind} | what it does | paper | settings |", "|---|---|---|---|"]
    for name in registry:
        cls = registry[name]
        lines.append(f"| `{name}` | {_summary(cls)} | {cls.paper or '–'} | {_settings(cls)} |")
    return "\n".join(lines)


def _methods() -> str:
    """Every method: its paper, its terms, its settings, what it needs, and whether it composes with TSA."""
    lines = ["| method | what it does | paper | terms | settings | needs | +TSA |", "|---|---|---|---|---|---|---|"]
    for name in METHODS:
        cls = METHODS[name]
        target = cls.needs_target or cls.target_statistics
        needs = [*(["target"] if target else []), *([f"{cls.heads} heads"] if cls.heads > 1 else [])]
        tsa = "yes" if cls.heads == 1 else "yes, for each head"
        cells = (
            f"`{name}`", _summary(cls), cls.paper or "–", ", ".join(cls.terms) or "–", _settings(cls),
            ", ".join(needs) or "–", tsa,
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _summary(cls: type[Term]) -> str:
    return (cls.__doc__ or "").splitlines()[0]


def _settings(cls: type[Term]) -> str:
    return ", ".join(f"`{one.name}` {one.shown or one.default}" for one in cls.settings.values()) or "–"


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


PAGES = {"docs/methods.md": terms_tables, "docs/selection.md": validators_table}

if __name__ == "__main__":
    for name, made in PAGES.items():
        path = Path(name)
        path.write_text(fill(path.read_text(encoding="utf-8"), "make docs", made()), encoding="utf-8")
