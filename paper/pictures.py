"""Pictures of tables: ours beside the paper's, as rows of dots or as curves; and the note inside each PNG."""

import io
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from paper.cells import Cell
from tsadapt.files import write_atomically
from tsadapt.report.figures import pyplot, write_figure

__all__ = ["Curves", "draw_curves_of_rows", "draw_rows", "stamp"]


COLOURS = ("#1565c0", "#e65100", "#2e7d32", "#6a1b9a")
"""Of curves."""

BANNER = 26
"""Pixels above a picture for a line about it."""


def draw_rows(
    table: Mapping[str, Mapping[str, Cell]], title: str, path: Path, bars: Mapping[str, Mapping[str, float]]
) -> None:  # fmt: skip
    """Every column of a table as a panel: a dot with its deviation for each of our rows, a ring for the paper's.

    `bars` has more panels: by their title and row.
    """
    rows, columns = [*table], [*next(iter(table.values()))]
    high, wide = _panels(len(columns) + len(bars))
    figure, axes = pyplot().subplots(
        high, wide, figsize=(2.2 + 2.6 * wide, high * (1.1 + 0.27 * len(rows))), layout="constrained", squeeze=False,
        sharey=True,
    )  # fmt: skip
    for axis in axes.flat[len(columns) + len(bars) :]:
        axis.set_visible(False)
    for axis, (name, numbers) in zip(axes.flat[len(columns) :], bars.items(), strict=False):
        heights = [rows.index(row) for row in numbers if row in rows]
        drawn = axis.barh(heights, [numbers[rows[y]] for y in heights], height=0.55, color="#90a4ae")
        axis.bar_label(drawn, fmt="%.3g", padding=2, size=8)
        axis.set(title=name)
        axis.margins(x=0.18)
        axis.spines[["top", "right"]].set_visible(False)
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
    rings = (
        " (dots: ours, rings: the paper)" if any(table[r][c].paper is not None for r in rows for c in columns) else ""
    )
    figure.suptitle("\n".join(textwrap.wrap(f"{title}{rings}", 22 + 26 * wide)), fontsize=10)
    write_figure(figure, path)


@dataclass(frozen=True)
class Curves:
    """Rows of a table as curves over `x`: by the name of a curve, the titles of its rows by where they stand."""

    x: str
    points: Mapping[str, Mapping[float, str]]


def draw_curves_of_rows(table: Mapping[str, Mapping[str, Cell]], curves: Curves, title: str, path: Path) -> None:
    """Every column of a table as a panel: curves of ours with their deviations, rings for the paper's."""
    columns = [*next(iter(table.values()))]
    high, wide = _panels(len(columns))
    figure, axes = pyplot().subplots(
        high, wide, figsize=(0.6 + 2.9 * wide, 2.7 * high + 0.6), layout="constrained", squeeze=False
    )
    for axis in axes.flat[len(columns) :]:
        axis.set_visible(False)
    rings = ""
    for axis, column in zip(axes.flat, columns, strict=False):
        for (name, rows), colour in zip(curves.points.items(), cycle(COLOURS), strict=False):
            there = {x: table[row][column] for x, row in rows.items() if row in table}
            ours = {x: cell for x, cell in sorted(there.items()) if cell.mean is not None}
            axis.errorbar(
                [*ours], [cell.mean for cell in ours.values()], yerr=[cell.deviation or 0 for cell in ours.values()],
                fmt="o-", markersize=4, capsize=2, color=colour, label=name,
            )  # fmt: skip
            theirs = {x: cell.paper for x, cell in there.items() if cell.paper is not None}
            if theirs:
                axis.plot([*theirs], [*theirs.values()], "o", markerfacecolor="none", markersize=9, color="#424242")
                rings = " (rings: the paper)"
        axis.set(title=column, xlabel=curves.x)
        axis.grid(axis="y", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle("\n".join(textwrap.wrap(title + rings, 12 + 29 * wide)), fontsize=10)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    write_figure(figure, path)


def _panels(n: int) -> tuple[int, int]:
    """Rows and columns of panels: four abreast, or five where fewer places stay empty.

    >>> _panels(3), _panels(7), _panels(9)
    ((1, 3), (2, 4), (2, 5))
    """
    wide = n if n < 4 else min((4, 5), key=lambda wide: -n % wide)
    return -(-n // wide), wide


def stamp(path: Path, text: str, banner: str = "") -> None:
    """Write into a PNG, where any viewer of properties shows it, how it was made; its pixels stay as they are.

    A `banner` stands above them, once.
    """
    from PIL import Image, ImageDraw, PngImagePlugin

    with Image.open(path) as image:
        before = image.info.get("Comment", "")
        if (image.info.get("Description"), before) == (text, banner):
            return
        note = PngImagePlugin.PngInfo()
        note.add_itxt("Description", text)
        note.add_itxt("Comment", banner)
        drawn: Image.Image = image
        if banner and before != banner:
            drawn = Image.new("RGB", (image.width, image.height + BANNER), "#fff3e0")
            drawn.paste(image, (0, BANNER))
            ImageDraw.Draw(drawn).text((8, 4), banner, fill="#bf360c", font_size=BANNER - 10)
        buffer = io.BytesIO()
        drawn.save(buffer, format="png", pnginfo=note, optimize=True)
    write_atomically(path, buffer.getvalue())
