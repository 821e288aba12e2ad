"""What was measured, in short: +TSA beside +MI for each base method, and a table of the paper with a line a row."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from paper.catalogue import RECIPES
from paper.protocols import PLACES
from paper.published import published
from paper.results_file import Kept, parts
from paper.rows import TITLES
from paper.sections import with_runs
from paper.tables import Cell, cells, make_jobs
from tsadapt.errors import counted

__all__ = ["brief_table", "in_short"]


def in_short(found: dict[Path, dict[str, Any]]) -> str:
    """Each base method plain, with MI and with TSA, over the tasks and seeds that all three have.

    Of several files of the same data and protocol, the one with the most of them counts.
    """
    compared: dict[tuple[str, str, str], _Compared] = {}
    for path, said in found.items():
        for base in TITLES.values():
            one = _compare(path.stem, said, base)
            which = (said["data"], said["protocol"], base)
            if one is not None and (which not in compared or one.runs > compared[which].runs):
                compared[which] = one
    if not compared:
        return ""
    above = sum(mean(one.less) > 0 for one in compared.values())
    lines = [
        f"In short: in {above} of {len(compared)} cases +TSA is above +MI. Target accuracy, %, last step, means over"
        " the tasks and seeds that all three have; the last column has mean and deviation of the runs' differences.",
        "",
        "| | base | runs of each | plain | +MI | +TSA | +TSA less +MI |",
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
    """A base method in a file: the means of plain, +MI and +TSA, and run by run +TSA less +MI."""

    title: str
    base: str
    means: tuple[float, ...]
    less: tuple[float, ...]

    @property
    def runs(self) -> int:
        return len(self.less)


def _compare(stem: str, said: dict[str, Any], base: str) -> _Compared | None:
    """None if the file has not all three of a base."""
    place = next((place for place in PLACES.values() if place.title == said["data"]), None)
    measure = "accuracy" if place is None else place.measure
    by_row: dict[str, dict[tuple[str, int], float]] = {}
    for key, run in _of_the_table(said).items():
        row, column, seed = parts(key)
        if measure in run:
            by_row.setdefault(row, {})[column, seed] = run[measure]
    three = [by_row.get(title, {}) for title in (base, f"{base} +MI", f"{base} +TSA")]
    common = sorted(set.intersection(*map(set, three)))
    if not common:
        return None
    plain, mi, tsa = ([values[task] for task in common] for values in three)
    oracle = f" ({place.oracle})" if place is not None and place.oracle else ""
    less = tuple(a - b for a, b in zip(tsa, mi, strict=True))
    return _Compared(f"{stem}, {said['data']}{oracle}", base, (mean(plain), mean(mi), mean(tsa)), less)


def _of_the_table(said: dict[str, Any]) -> Kept:
    """What was measured with the table's settings; what was with others stays in the file, and is no part of it."""
    return {key: run for key, run in said["runs"].items() if run["hash"] in said["settings"]["of_each"]}


def brief_table(folder: Path, name: str) -> str:
    """A table at the paper's own data with a line a row: ours, and the paper's in brackets."""
    recipe, place = RECIPES[name], PLACES[RECIPES[name].home]
    kept = _of_the_table(json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))
    there = {parts(key).column for key in kept}
    columns = [c for c in recipe.columns or place.tasks if c in there]
    jobs = make_jobs(place, recipe.rows, columns, recipe.seeds)
    table, _ = with_runs(cells(jobs, kept, recipe.rows, columns, published()[name], lambda run: run.get(place.measure)))
    lines = [f"| | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    lines += [f"| {title} | {' | '.join(_brief(row[c]) for c in columns)} |" for title, row in table.items()]
    return "\n".join(lines)


def _brief(cell: Cell) -> str:
    if cell.mean is None:
        return "–"
    few = f" ({counted(len(cell.values), 'seed')})" if len(cell.values) < cell.wanted else ""
    spread = f" ± {cell.deviation:.1f}{few}" if cell.deviation is not None else few
    paper = "" if cell.paper is None else f" [{cell.paper:.1f}]"
    return f"{cell.mean:.1f}{spread}{paper}"
