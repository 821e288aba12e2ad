"""Ours beside the paper's: Markdown and a picture."""

import io
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from tsadapt.engine.files import write_atomically
from tsadapt.report.figures import pyplot, write_figure

__all__ = ["Value", "draw_rows", "markdown_table", "stamp"]


class Value(Protocol):
    """A number over seeds, and the paper's."""

    values: tuple[float, ...]
    wanted: int
    paper: float | None
    paper_deviation: float | None
    mean: float | None
    deviation: float | None
    difference: float | None


def markdown_table(table: Mapping[str, Mapping[str, Any]], digits: int = 1) -> str:
    """Rows of ours, each followed by the paper's and the difference where the paper has the row."""
    columns = [*next(iter(table.values()))]
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for title, row in table.items():
        lines.append(f"| {title} | " + " | ".join(_ours(row[c], digits) for c in columns) + " |")
        if any(row[c].paper is not None for c in columns):
            theirs = [_theirs(row[c], digits) for c in columns]
            differ = ["–" if row[c].difference is None else f"{row[c].difference:+.{digits}f}" for c in columns]
            lines.append("| · the paper | " + " | ".join(theirs) + " |")
            if any(row[c].difference is not None for c in columns):
                lines.append("| · difference | " + " | ".join(differ) + " |")
    return "\n".join(lines)


def _theirs(cell: Value, digits: int) -> str:
    if cell.paper is None:
        return "–"
    spread = "" if cell.paper_deviation is None else f" ± {cell.paper_deviation:.{digits}f}"
    return f"{cell.paper:.{digits}f}{spread}"


def _ours(cell: Value, digits: int) -> str:
    if cell.mean is None:
        return "not run"
    spread = "" if cell.deviation is None else f" ± {cell.deviation:.{digits}f}"
    missing = "" if len(cell.values) == cell.wanted else f" ({len(cell.values)} of {cell.wanted} seeds)"
    return f"{cell.mean:.{digits}f}{spread}{missing}"


def draw_rows(table: Mapping[str, Mapping[str, Any]], title: str, path: Path) -> None:
    """Every column of a table as a panel: a dot with its deviation for each of our rows, a ring for the paper's."""
    rows = [*table]
    columns = [c for c in next(iter(table.values())) if any(table[r][c].mean is not None for r in rows)]
    if not columns:
        return
    wide = min(len(columns), 4)
    high = -(-len(columns) // wide)
    figure, axes = pyplot().subplots(
        high, wide, figsize=(2.2 + 2.6 * wide, high * (1.1 + 0.27 * len(rows))), layout="constrained", squeeze=False,
        sharey=True,
    )  # fmt: skip
    for axis in axes.flat[len(columns) :]:
        axis.set_visible(False)
    for axis, column in zip(axes.flat, columns, strict=False):
        for y, row in enumerate(rows):
            cell = table[row][column]
            if cell.mean is not None:
                axis.errorbar(cell.mean, y, xerr=cell.deviation or 0, fmt="o", color="#1565c0", capsize=3)
            if cell.paper is not None:
                axis.plot(cell.paper, y, "o", markerfacecolor="none", markeredgecolor="#e65100", markersize=9)
        axis.set(title=column, ylim=(len(rows) - 0.5, -0.5))
        axis.set_yticks(range(len(rows)), rows)
        axis.grid(axis="x", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    rings = ", rings: the paper" if any(table[r][c].paper is not None for r in rows for c in columns) else ""
    figure.suptitle("\n".join(textwrap.wrap(f"{title} (dots: ours{rings})", 22 + 26 * wide)), fontsize=10)
    write_figure(figure, path)


def stamp(path: Path, text: str) -> None:
    """Write into a PNG, where any viewer of properties shows it, how it was made; its pixels stay as they are."""
    from PIL import Image, PngImagePlugin

    with Image.open(path) as image:
        if image.info.get("Description") == text:
            return
        said = PngImagePlugin.PngInfo()
        said.add_itxt("Description", text)
        buffer = io.BytesIO()
        image.save(buffer, format="png", pnginfo=said, optimize=True)
    write_atomically(path, buffer.getvalue())
