"""One page of all that was reproduced, and the digits' table for the README.

python -m paper.results_page paper/results docs/results.md README.md
"""

import json
import os
import re
import sys
from pathlib import Path

from paper.catalogue import RECIPES
from paper.protocols import PLACES
from paper.summary import brief_table, in_short
from tsadapt.files import write_atomically
from tsadapt.report.tables import fill

__all__ = ["COMMAND", "results_page"]

COMMAND = "make docs"

HEAD = """\
# The paper's tables and figures

Every section is made by the command that stands at its end, and goes on where it was stopped; nothing is typed by
hand. `tsadapt reproduce --list` says what can run with the data that is here.

- Ours stand first, and below them the paper's numbers where data and protocol are the paper's as far as they can be
  had; what differs stands in the section. Ours are of the last step of every run. The paper does not say of which step
  its own are; the code its authors published reports the best epoch by target labels, which for ours is called oracle.
- "+MI" is mutual information alone, "+TSA" the augmentation with mutual information.
- Source-only never sees the target. Everything else forwards both domains together, which changes batch normalisation
  as well: what that does by itself stands in the [table of base methods](../README.md#what-to-expect-of-it).
- Our CDAN+E stands beside the paper's CDAN, whose numbers equal, as far as we remember them, those published for
  CDAN+E; BSP is on top of CDAN+E.
"""


def results_page(folder: Path, page: Path) -> str:
    """The pages in a folder one below the other, in the paper's order, with links that work from `page`."""
    there = os.path.relpath(folder, page.parent)
    found = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    parts = [HEAD, _not_measured({said["name"] for said in found.values()}), in_short(found)]
    for name in RECIPES:
        for path in [path for path, said in found.items() if said["name"] == name]:
            text = path.with_suffix(".md").read_text(encoding="utf-8").strip()
            parts.append(re.sub(r"\]\(([^)/]+\.(?:png|json))\)", rf"]({there}/\1)", text))
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _not_measured(names: set[str]) -> str:
    """The tables and figures that are not on the page."""
    missing = [
        f"{name} ({PLACES[recipe.home].title}: {recipe.what})" for name, recipe in RECIPES.items() if name not in names
    ]
    return f"Not measured yet: {'; '.join(missing)}." if missing else ""


if __name__ == "__main__":
    results, page, readme = map(Path, sys.argv[1:])
    write_atomically(page, results_page(results, page))
    write_atomically(readme, fill(readme.read_text(encoding="utf-8"), COMMAND, brief_table(results, "table4")))
