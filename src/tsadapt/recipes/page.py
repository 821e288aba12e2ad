"""One page of all that was reproduced.

python -m tsadapt.recipes.page experiments/results/paper docs/results.md
"""

import json
import os
import re
import sys
from pathlib import Path

from tsadapt.engine.files import write_atomically
from tsadapt.recipes.catalogue import RECIPES

__all__ = ["results_page"]

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
- Our CDAN+E stands beside the paper's CDAN, whose numbers equal those published for CDAN+E; BSP is on top of CDAN+E.
"""


def results_page(folder: Path, page: Path) -> str:
    """The pages in a folder one below the other, in the paper's order, with links that work from `page`."""
    there = os.path.relpath(folder, page.parent)
    found = {path: json.loads(path.read_text(encoding="utf-8"))["name"] for path in sorted(folder.glob("*.json"))}
    parts = [HEAD]
    for name in RECIPES:
        for path in [path for path, of in found.items() if of == name]:
            text = path.with_suffix(".md").read_text(encoding="utf-8").strip()
            parts.append(re.sub(r"\]\(([^)/]+\.(?:png|json))\)", rf"]({there}/\1)", text))
    return "\n\n".join(part.strip() for part in parts) + "\n"


if __name__ == "__main__":
    target = Path(sys.argv[2])
    write_atomically(target, results_page(Path(sys.argv[1]), target))
