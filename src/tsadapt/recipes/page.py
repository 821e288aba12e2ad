"""One page of all that was reproduced, and the digits' table for the README.

python -m tsadapt.recipes.page experiments/results/paper docs/results.md README.md
"""

import json
import os
import re
import sys
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

from tsadapt.engine.files import write_atomically
from tsadapt.recipes.catalogue import RECIPES
from tsadapt.recipes.ledger import Kept
from tsadapt.recipes.places import PLACES
from tsadapt.recipes.published import published
from tsadapt.recipes.rows import TITLES
from tsadapt.recipes.sections import with_runs
from tsadapt.recipes.table import Cell, cells, make_jobs
from tsadapt.report.tables import fill

__all__ = ["COMMAND", "brief_table", "results_page"]

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
- Our CDAN+E stands beside the paper's CDAN, whose numbers equal those published for CDAN+E; BSP is on top of CDAN+E.
"""


def results_page(folder: Path, page: Path) -> str:
    """The pages in a folder one below the other, in the paper's order, with links that work from `page`."""
    there = os.path.relpath(folder, page.parent)
    found = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    parts = [HEAD, _not_measured({said["name"] for said in found.values()}), _in_short([*found.values()])]
    for name in RECIPES:
        for path in [path for path, said in found.items() if said["name"] == name]:
            text = path.with_suffix(".md").read_text(encoding="utf-8").strip()
            parts.append(re.sub(r"\]\(([^)/]+\.(?:png|json))\)", rf"]({there}/\1)", text))
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _not_measured(names: set[str]) -> str:
    """The tables and figures that are not on the page."""
    missing = [f"{name} ({recipe.what})" for name, recipe in RECIPES.items() if name not in names]
    return f"Not measured yet: {'; '.join(missing)}." if missing else ""


def _in_short(results: list[dict[str, Any]]) -> str:
    """Each base method plain, with MI and with TSA, over the tasks and seeds that all three have."""
    lines: dict[tuple[str, str], str] = {}
    above = []
    for said in results:
        runs = _of_the_table(said)
        for base in TITLES.values():
            rows = [
                {key.partition(" | ")[2]: run["accuracy"] for key, run in runs.items() if key.startswith(start)}
                for start in (f"{base} | ", f"{base} +MI | ", f"{base} +TSA | ")
                if all("accuracy" in run for run in runs.values())
            ]
            common = set.intersection(*map(set, rows)) if rows else set()
            if common and (said["data"], base) not in lines:
                plain, mi, tsa = ([row[task] for task in sorted(common)] for row in rows)
                less = [a - b for a, b in zip(tsa, mi, strict=True)]
                above.append(mean(less) > 0)
                numbers = (
                    f"{mean(plain):.1f} | {mean(mi):.1f} | {mean(tsa):.1f} | {mean(less):+.1f} ± {pstdev(less):.1f}"
                )
                lines[said["data"], base] = f"| {said['name']}, {said['data']} | {base} | {len(common)} | {numbers} |"
    if not lines:
        return ""
    head = ["| | base | runs of each | plain | +MI | +TSA | +TSA less +MI |", "|---|---|---|---|---|---|---|"]
    told = (
        f"In short: in {sum(above)} of {len(above)} cases +TSA is above +MI. Target accuracy, %, last step, means over"
        " the tasks and seeds that all three have; the last column has the mean and deviation of the runs' differences."
    )
    return "\n".join([told, "", *head, *lines.values()])


def _of_the_table(said: dict[str, Any]) -> Kept:
    """What was measured with the table's settings; what was with others stays in the file, and is no part of it."""
    return {key: run for key, run in said["runs"].items() if run["hash"] in said["settings"]["of_each"]}


def brief_table(folder: Path, name: str) -> str:
    """A table at the paper's own data with a line a row: ours, and the paper's in brackets."""
    recipe, place = RECIPES[name], PLACES[RECIPES[name].home]
    kept = _of_the_table(json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))
    columns = [c for c in recipe.columns or place.tasks if any(f" | {c} | " in key for key in kept)]
    jobs = make_jobs(place, recipe.rows, columns, recipe.seeds)
    table, _ = with_runs(cells(jobs, kept, recipe.rows, columns, published()[name], lambda run: run.get(place.measure)))
    lines = [f"| | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    lines += [f"| {title} | {' | '.join(_brief(row[c]) for c in columns)} |" for title, row in table.items()]
    return "\n".join(lines)


def _brief(cell: Cell) -> str:
    if cell.mean is None:
        return "–"
    spread = "" if cell.deviation is None else f" ± {cell.deviation:.1f}"
    paper = "" if cell.paper is None else f" ({cell.paper:.1f})"
    return f"{cell.mean:.1f}{spread}{paper}"


if __name__ == "__main__":
    results, page, readme = map(Path, sys.argv[1:])
    write_atomically(page, results_page(results, page))
    write_atomically(readme, fill(readme.read_text(encoding="utf-8"), COMMAND, brief_table(results, "table4")))
