"""One page of all that was reproduced.

python -m tsadapt.recipes.page experiments/results/paper docs/results.md
"""

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
hand. Ours stand first, and the paper's numbers below them where data and protocol are the paper's. "+MI" is mutual
information alone, "+TSA" the augmentation with mutual information. `tsadapt reproduce --list` says what can run with
the data that is here.
"""


def results_page(folder: Path, page: Path) -> str:
    """The pages in a folder one below the other, in the paper's order, with links that work from `page`."""
    there = os.path.relpath(folder, page.parent)
    found = {path.stem: path for path in sorted(folder.glob("*.md"))}
    parts = [HEAD]
    for name in RECIPES:
        for stem in [s for s in found if s == name or s.startswith((f"{name}-on-", f"{name}-frozen"))]:
            text = found[stem].read_text(encoding="utf-8").strip()
            parts.append(re.sub(r"\]\(([^)/]+\.(?:png|json))\)", rf"]({there}/\1)", text))
    return "\n\n".join(part.strip() for part in parts) + "\n"


if __name__ == "__main__":
    target = Path(sys.argv[2])
    write_atomically(target, results_page(Path(sys.argv[1]), target))
