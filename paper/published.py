"""The paper's own numbers, as `published.toml` has them."""

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["Published", "published"]


@dataclass(frozen=True)
class Published:
    """A table of the paper: its columns, and the rows by name; nan where it has no number."""

    columns: tuple[str, ...]
    rows: dict[str, tuple[float, ...]]
    deviations: dict[str, tuple[float, ...]]
    note: str

    def value(self, row: str | None, column: str) -> float | None:
        """One number, if the paper has it."""
        return self._of(self.rows, row, column)

    def deviation(self, row: str | None, column: str) -> float | None:
        """Its deviation, if the paper has one."""
        return self._of(self.deviations, row, column)

    def _of(self, rows: dict[str, tuple[float, ...]], row: str | None, column: str) -> float | None:
        if column == "Avg" and "Accuracy (%)" in self.columns:  # a table of averages alone
            column = "Accuracy (%)"
        if row not in rows or column not in self.columns:
            return None
        value = rows[row][self.columns.index(column)]
        return None if math.isnan(value) else value


@cache
def published() -> dict[str, Published]:
    """Every table, by the name that `python -m paper` has for it.

    >>> published()["table4"].value("Source-only +TSA", "U → M")
    96.9
    """
    stored = tomllib.loads(files("paper").joinpath("published.toml").read_text(encoding="utf-8"))
    return {
        name: Published(
            tuple(table["columns"]),
            {row: tuple(values) for row, values in table["rows"].items()},
            {row: tuple(values) for row, values in table.get("deviations", {}).items()},
            table.get("note", ""),
        )
        for name, table in stored.items()
    }
