"""What the sections of a page beside its accuracies share."""

from typing import Any

from paper.protocols import Protocol
from paper.results_file import Results, parts
from paper.rows import Row
from tsadapt.config import RunConfig

__all__ = ["Section", "common_runs", "configs_of_rows", "measured_before", "with_hashes"]

Section = tuple[str, dict[str, Any], dict[str, dict[str, float]]]
"""The text, the numbers to store, and those of them that the picture shows as bars: by their name and row."""


def configs_of_rows(protocol: Protocol, rows: list[Row], columns: list[str]) -> dict[str, RunConfig]:
    """The config of every row on the first task."""
    return {row.title: protocol.config(columns[0], 0, **row.settings) for row in rows}


def with_hashes(found: dict[str, Any], configs: dict[str, RunConfig]) -> dict[str, Any]:
    """What was measured, with the hashes of the configs it was measured on."""
    return {"of": {title: config.hash() for title, config in configs.items()}, "measured": found}


def measured_before(before: dict[str, Any], configs: dict[str, RunConfig]) -> dict[str, Any]:
    """What an earlier command measured, if it was on the same configs."""
    same = before.get("of") == {title: config.hash() for title, config in configs.items()}
    found: dict[str, Any] = before["measured"] if same else {}
    return found


def common_runs(
    rows: list[Row], results: Results
) -> tuple[list[tuple[str, int]], dict[str, dict[tuple[str, int], dict[str, Any]]]]:
    """The tasks and seeds that all rows have, of the rows that have any; and the runs of each row by them."""
    by_row: dict[str, dict[tuple[str, int], dict[str, Any]]] = {row.title: {} for row in rows}
    for key, run in results.items():
        title, column, seed = parts(key)
        by_row[title][column, seed] = run
    by_row = {title: runs for title, runs in by_row.items() if runs}
    common = sorted(set.intersection(*(set(runs) for runs in by_row.values())))
    return common, by_row if common else {}
