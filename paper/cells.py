"""A table's cells: ours over the seeds, beside the paper's numbers."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from paper.jobs import Job
from paper.published import Published
from paper.results_file import Key, Results
from paper.rows import Row

__all__ = ["AVERAGE", "Cell", "cells"]

AVERAGE = "Avg"
Pick = Callable[[dict[str, Any]], float | None]
"""A number of a stored run; None if it has none."""


@dataclass(frozen=True)
class Cell:
    """Ours over the seeds, how many seeds are wanted (0: the row has no such column), and the paper's number."""

    values: tuple[float, ...]
    wanted: int
    paper: float | None = None
    paper_deviation: float | None = None

    @property
    def mean(self) -> float | None:
        """None if nothing was run."""
        return statistics.mean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        """Over the seeds, if there are several."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper


def cells(
    jobs: list[Job], results: Results, rows: Iterable[Row], columns: list[str], paper: Published | None, pick: Pick
) -> dict[str, dict[str, Cell]]:
    """By row and column, with the average over the columns where all were run."""
    wanted = Counter((job.row, job.column) for job in jobs)
    seeds = sorted({job.seed for job in jobs})
    table: dict[str, dict[str, Cell]] = {}
    for row in rows:
        by_seed = [[pick(results.get(str(Key(row.title, c, seed)), {})) for c in columns] for seed in seeds]
        found = {c: [values[i] for values in by_seed if values[i] is not None] for i, c in enumerate(columns)}
        expected = {c: wanted[row.title, c] for c in columns}
        if len(columns) > 1:
            found[AVERAGE] = [statistics.mean(v) for v in by_seed if None not in v]  # type: ignore[type-var]
            expected[AVERAGE] = min(expected.values())
        table[row.title] = {
            column: Cell(tuple(values), expected[column], *_theirs(paper, row, column, columns))  # type: ignore[arg-type]
            for column, values in found.items()
        }
    return table


def _theirs(paper: Published | None, row: Row, column: str, columns: list[str]) -> tuple[float | None, float | None]:
    """The paper's number and its deviation; its average only where it is over the same columns."""
    if paper is None or (column == AVERAGE and not _same(paper, columns)):
        return None, None
    return paper.value(row.published, column), paper.deviation(row.published, column)


def _same(paper: Published, columns: list[str]) -> bool:
    """Whether the paper's average is over these columns."""
    return AVERAGE not in paper.columns or {*paper.columns} == {*columns, AVERAGE}
