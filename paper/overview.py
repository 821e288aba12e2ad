"""One page of all results, and the short table of the README."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from paper.catalogue import RECIPES
from paper.protocols import PROTOCOLS
from paper.results_file import Results, parts
from paper.rows import TITLES

__all__ = ["overview"]

HEAD = """\
# Results: the paper's tables and figures, and our studies

Each section ends with the command that made it; the same command resumes it. `make docs` makes this page from the
stored results, and `python -m paper --list` shows what can run with the data at hand ([reproduce.md](reproduce.md)).

- Our numbers come first. The paper's stand below them where data and protocol are the paper's, as far as they are
  available; each section states the differences. Ours are of the last step of every run. The paper does not state which
  step it reports; its authors' code reports the best epoch by target labels, which we call oracle.
- "+MI" is mutual information alone, "+TSA" the augmentation with mutual information.
- Source-only never sees the target. AdaBN is source-only with the batch normalisation of the target: the baseline to
  beat. DANN and JADA forward the domains one by one, everything else both together, which changes batch normalisation
  as well ([base-methods](../paper/results/base-methods.md), [normalisation](../paper/results/normalisation.md)).
- Our CDAN+E stands beside the paper's CDAN; BSP is on top of CDAN+E.
"""


def overview(folder: Path, page: Path) -> str:
    """The pages in a folder one below the other, in the catalogue's order, with links that work from `page`."""
    there = os.path.relpath(folder, page.parent)
    found = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    sections = [HEAD, _not_measured({stored["name"] for stored in found.values()}), _in_short(found)]
    for name in RECIPES:
        mine = [path for path, stored in found.items() if stored["name"] == name]
        for path in sorted(mine, key=lambda path: not _is_the_papers(found[path])):
            text = path.with_suffix(".md").read_text(encoding="utf-8").strip()
            sections.append(re.sub(r"\]\(([^)/]+\.(?:png|json|md))\)", rf"]({there}/\1)", text))
    return "\n\n".join(section.strip() for section in sections if section) + "\n"


def _is_the_papers(stored: dict[str, Any]) -> bool:
    """Whether results are of the paper's own data for that table or figure, and not of a stand-in."""
    home = RECIPES[stored["name"]].home
    known = {protocol.title for name, protocol in PROTOCOLS.items() if home in (name, protocol.beside)}
    return stored["data"] in known


def _not_measured(names: set[str]) -> str:
    """The tables and figures that are not on the page."""
    missing = [
        f"{name} ({PROTOCOLS[recipe.home].title}: {recipe.what})"
        for name, recipe in RECIPES.items()
        if name not in names
    ]
    return f"Not measured yet: {'; '.join(missing)}." if missing else ""


def _in_short(found: dict[Path, dict[str, Any]]) -> str:
    """Each base method plain, with MI and with TSA, over the tasks and seeds that all three have.

    Of several files of the same data and protocol, the one with the most of them counts.
    """
    compared: dict[tuple[str, str, str], _Compared] = {}
    for path, stored in found.items():
        for base in TITLES.values():
            one = _compare(path.stem, stored, base)
            which = (stored["data"], stored["protocol"], base)
            if one is not None and (which not in compared or one.runs > compared[which].runs):
                compared[which] = one
    if not compared:
        return ""
    above = sum(mean(one.less) > 0 for one in compared.values())
    lines = [
        f"In short: +TSA is above +MI in {above} of {len(compared)} cases. Target accuracy, %, last step, means over"
        " the tasks and seeds that all three have. Last column: differences run by run, mean ± standard deviation.",
        "",
        "| | base | runs of each | plain | +MI | +TSA | +TSA − +MI |",
        "|---|---|---|---|---|---|---|",
    ]
    order = [*TITLES.values()]
    for one in sorted(compared.values(), key=lambda one: (one.title, order.index(one.base))):
        spread = f" ± {stdev(one.less):.1f}" if one.runs > 1 else ""
        means = " | ".join(f"{value:.1f}" for value in one.means)
        lines.append(f"| {one.title} | {one.base} | {one.runs} | {means} | {mean(one.less):+.1f}{spread} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class _Compared:
    """A base method in a file: the means of plain, +MI and +TSA, and +TSA minus +MI run by run."""

    title: str
    base: str
    means: tuple[float, ...]
    less: tuple[float, ...]

    @property
    def runs(self) -> int:
        return len(self.less)


def _compare(stem: str, stored: dict[str, Any], base: str) -> _Compared | None:
    """None if the file has not all three of a base."""
    protocol = next((known for known in PROTOCOLS.values() if known.title == stored["data"]), None)
    measure = "accuracy" if protocol is None else protocol.measure
    by_row: dict[str, dict[tuple[str, int], float]] = {}
    for key, run in _of_the_table(stored).items():
        row, column, seed = parts(key)
        if measure in run:
            by_row.setdefault(row, {})[column, seed] = run[measure]
    three = [by_row.get(title, {}) for title in (base, f"{base} +MI", f"{base} +TSA")]
    common = sorted(set.intersection(*map(set, three)))
    if not common:
        return None
    plain, mi, tsa = ([values[task] for task in common] for values in three)
    oracle = f" ({protocol.oracle})" if protocol is not None and protocol.oracle else ""
    less = tuple(a - b for a, b in zip(tsa, mi, strict=True))
    return _Compared(f"{stem}, {stored['data']}{oracle}", base, (mean(plain), mean(mi), mean(tsa)), less)


def _of_the_table(stored: dict[str, Any]) -> Results:
    """The runs with the table's settings; those with former settings stay in the file, outside the table."""
    return {key: run for key, run in stored["runs"].items() if run["hash"] in stored["settings"]["of_each"]}
