"""Tables of what there is, as Markdown; `python -m tsadapt.report.tables docs/methods.md` puts them into a page."""

import re
import sys
from pathlib import Path

from tsadapt.methods import METHODS

__all__ = ["methods_table", "with_table"]

PLACE = re.compile(r"(<!-- made by `make docs` -->\n).*?(<!-- end -->)", re.DOTALL)


def methods_table() -> str:
    """Every registered method: its paper, its terms, what it needs, and whether it composes with TSA."""
    lines = ["| method | what it does | paper | terms | needs | +TSA |", "|---|---|---|---|---|---|"]
    for name in METHODS:
        method = METHODS[name]
        what = (method.__doc__ or "").splitlines()[0]
        needs = [*(["target"] if method.needs_target else []), *([f"{method.heads} heads"] if method.heads > 1 else [])]
        tsa = "yes" if method.heads == 1 else "yes, for each head"
        cells = (f"`{name}`", what, method.paper or "–", ", ".join(method.terms) or "–", ", ".join(needs) or "–", tsa)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def with_table(page: str) -> str:
    """A page with the table between its two marks made anew."""
    return PLACE.sub(lambda match: f"{match[1]}{methods_table()}\n{match[2]}", page)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")
