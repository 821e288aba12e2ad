"""From what a page shows to what its templates draw: the rows to show, bars, circles, cells, and the script's data.

Shapes: N target rows, C classes.
"""

import math
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from tsadapt.data.images import Images, UnreadableImageError
from tsadapt.objectives.named import SOURCE_ONLY
from tsadapt.report.charts import Line, drawn
from tsadapt.report.comparison import named
from tsadapt.report.page import Column, Comparison, Interval, Measured, Page, Plane, Rows, RunPage
from tsadapt.report.shown_numbers import certainty, nice_number, percent
from tsadapt.report.thumbnails import SMALL, Album
from tsadapt.report.verdict import verdict

__all__ = ["View", "comparison_table", "views_of"]

MOST_IMAGES, MOST_ROWS = 900, 1500
"""Predictions on a page of images and of rows, shared by its runs."""

FIRST_IMAGES, FIRST_ROWS = 24, 40
"""Predictions that are there without JavaScript, and at first."""

LEAST_SURE = 0.1
"""Without an estimate of doubt, this share of the rows, by their softmax, counts as the least sure."""

MANY_CLASSES = 24
"""Classes whose shares are shown at once."""

ALL_CLASSES = 400
"""Classes whose shares are shown at all."""

HUES = 10
"""Classes up to which each has a colour of its own in the map."""


@dataclass(frozen=True)
class Share:
    """The share of a class in both domains, with the lengths of its bars in percent of the longest."""

    name: str
    source: float | None
    target: float
    interval: Interval | None
    wide: tuple[float, float] = (0.0, 0.0)
    whisker: tuple[float, float] | None = None


@dataclass(frozen=True)
class View:
    """What the template needs of a run beside the run itself."""

    id: str
    run: RunPage
    verdict: tuple[str, str]
    method: str
    plain: bool
    tiles: list[dict[str, Any]]
    first: int
    shown: int
    pixelated: bool
    present: list[tuple[int, str, int]]
    doubtful: int
    by_softmax: bool
    shares: list[Share]
    shares_of: str
    planes: list[dict[str, Any]]
    hues: list[tuple[int, str]]
    curves: list[tuple[str, list[Line]]]
    matrix: list[dict[str, Any]]
    bins: list[dict[str, float | int]]
    mean_confidence: float


def views_of(page: Page, pictures: int) -> tuple[list[View], dict[str, Any]]:
    """The runs as the templates take them, and the data of the page's script."""
    views, data = [], []
    album, spent = Album(0), 0
    for i, run in enumerate(page.runs):
        album.left = pictures * (i + 1) // len(page.runs) - spent
        before = album.left
        view, found = _view(f"r{i}", run, page, album)
        spent += before - album.left
        views.append(view)
        data.append(found)
    return views, {"runs": data, "pictures": album.pictures}


def _view(mark: str, run: RunPage, page: Page, album: Album) -> tuple[View, dict[str, Any]]:
    rows = run.rows
    assert rows.confidence is not None
    trusted = run.trusted
    sure = rows.confidence if trusted is None or trusted.right is None else trusted.right
    order = np.argsort(sure, kind="stable")
    doubtful = np.zeros(len(rows), bool)
    if trusted is not None and trusted.doubtful is not None:
        doubtful = trusted.doubtful
    else:
        doubtful[order[: max(math.ceil(LEAST_SURE * len(rows)), min(10, len(rows)))]] = True
    most = (MOST_IMAGES if rows.pictures is not None else MOST_ROWS) // len(page.runs)
    shown = _most_doubtful(order, rows.guess, max(most, 60))
    side = 224 if len(shown) <= 300 else 176
    place = f"target {run.target.name}, {run.target.rows}"
    tiles = [_tile(int(row), run, rows, sure, doubtful, album, place, side) for row in shown]
    counts = np.bincount(rows.guess, minlength=len(run.classes))
    planes, points = _planes(run, album, place)
    pixelated = rows.pictures is not None and _are_small(rows.pictures)
    known = {name: list(group) for name, group in groupby(map(drawn, run.curves), lambda line: line.group)}
    view = View(
        mark, run, verdict(run), named(run.label.rpartition(": ")[2], run.objective), run.objective == SOURCE_ONLY,
        tiles,
        FIRST_IMAGES if rows.pictures is not None else FIRST_ROWS, len(rows), pixelated,
        [(c, name, int(counts[c])) for c, name in enumerate(run.classes) if counts[c]], int(doubtful.sum()),
        trusted is None or trusted.doubtful is None, _shares(run),
        "estimated" if trusted is not None and trusted.shares else "predicted", planes,
        [*enumerate(run.classes)] if len(run.classes) <= HUES else [], [*known.items()],
        _matrix(run.measured, run.classes), _bins(run.measured), float(rows.confidence.mean()),
    )  # fmt: skip
    script = {
        "id": mark, "classes": list(run.classes), "tiles": tiles, "planes": points, "pixelated": pixelated,
        "images": rows.pictures is not None, "columns": list(rows.columns), "right": trusted is not None
        and trusted.right is not None, "first": view.first,
    }  # fmt: skip
    return view, script


def _are_small(images: Images) -> bool:
    """Whether images, by the first, are shown pixel by pixel."""
    try:
        return len(images) > 0 and max(images.decode(0, SMALL + 1).shape[1:]) <= SMALL
    except UnreadableImageError:
        return False


def _most_doubtful(order: np.ndarray, guess: np.ndarray, most: int) -> np.ndarray:
    """Rows from the most doubtful to the surest: all, or the most doubtful half and those of every class."""
    if len(order) <= most:
        return order
    kept = set(order[: most // 2].tolist())
    by_class: dict[int, list[int]] = {}
    for row in order.tolist():
        by_class.setdefault(int(guess[row]), []).append(row)
    depth = 0
    while len(kept) < most and any(len(mine) > depth for mine in by_class.values()):
        kept |= {mine[depth] for mine in by_class.values() if len(mine) > depth}
        depth += 1
    return np.array([row for row in order.tolist() if row in kept][:most])


def _tile(
    row: int, run: RunPage, rows: Rows, sure: np.ndarray, doubtful: np.ndarray, album: Album, place: str, side: int
) -> dict[str, Any]:
    """One prediction, as the templates and the script show it."""
    assert rows.confidence is not None
    found: dict[str, Any] = {
        "name": rows.names[row], "guess": int(rows.guess[row]), "sure": certainty(float(sure[row])),
        "softmax": certainty(float(rows.confidence[row])), "doubtful": bool(doubtful[row]),
    }  # fmt: skip
    if rows.second is not None:
        found["second"] = int(rows.second[row])
    if rows.truth is not None and rows.truth[row] >= -1:
        found["truth"] = int(rows.truth[row])
    if rows.pictures is not None:
        found["picture"] = album.add(place, rows.pictures, row, side)
    if rows.values is not None:
        found["cells"] = [nice_number(float(value)) for value in rows.values[row]]
    return found


def _planes(run: RunPage, album: Album, place: str) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """The maps as circles for the template, and what is said of each point for the script."""
    drawn_planes, said = [], []
    for plane in run.planes:
        points, about = [], []
        for i in range(len(plane.points)):
            x, y = (round(float(v), 4) for v in plane.points[i])
            points.append((x, y, bool(plane.target[i]), int(plane.label[i])))
            about.append(_about(plane, i, run, album, place))
        order = sorted(range(len(points)), key=lambda i: (i * 7919) % len(points))  # neither domain covers the other
        drawn_planes.append({
            "title": plane.title, "text": plane.text, "points": [points[i] for i in order],
            "rows": (int((~plane.target).sum()), int(plane.target.sum())),
        })  # fmt: skip
        said.append([about[i] for i in order])
    return drawn_planes, said


def _about(plane: Plane, i: int, run: RunPage, album: Album, place: str) -> list[Any]:
    """Target or not, name, class, softmax, picture of a point."""
    row, label = int(plane.rows[i]), int(plane.label[i])
    if plane.target[i]:
        rows, of = run.rows, place
    elif run.source_rows is None or row < 0:
        return [0, "", label, None, None]
    else:
        rows, of = run.source_rows, f"source {run.source.name}, {run.source.rows}"
    key = None if rows.pictures is None else album.add(of, rows.pictures, row, 72)
    sure = None if rows.confidence is None else certainty(float(rows.confidence[row]))
    return [int(plane.target[i]), rows.names[row], label, sure, key]


def _shares(run: RunPage) -> list[Share]:
    """The share of each class; of many classes, those that differ most first."""
    estimated = run.trusted.shares if run.trusted is not None else {}
    predicted, given = run.target.shares, run.source.shares
    assert predicted is not None
    found = []
    for c, name in enumerate(run.classes):
        known = estimated.get(name)
        target = float(predicted[c]) if known is None else known.value
        found.append(Share(name, None if given is None else float(given[c]), target, known))
    if len(found) > MANY_CLASSES:
        found = sorted(found, key=lambda one: -abs(one.target - (one.source or 0.0)))[:ALL_CLASSES]
    longest = max(
        1e-9, *(max(one.source or 0.0, one.target, one.interval.high if one.interval else 0.0) for one in found)
    )

    def wide(share: float | None) -> float:
        return round(100 * (share or 0.0) / longest, 2)

    def whisker(span: Interval | None) -> tuple[float, float] | None:
        return None if span is None else (wide(span.low), wide(span.high - span.low))

    return [replace(one, wide=(wide(one.source), wide(one.target)), whisker=whisker(one.interval)) for one in found]


def _matrix(measured: Measured | None, classes: tuple[str, ...]) -> list[dict[str, Any]]:
    if measured is None or measured.confusion is None:
        return []
    share = measured.confusion / np.maximum(measured.confusion.sum(1, keepdims=True), 1)
    return [
        {
            "name": name,
            "cells": [
                {"rows": int(measured.confusion[i, j]), "share": round(float(share[i, j]), 3), "right": i == j}
                for j in range(len(classes))
            ],
            "share": float(share[i, i]),
            "total": int(measured.confusion[i].sum()),
        }
        for i, name in enumerate(classes)
    ]


def _bins(measured: Measured | None) -> list[dict[str, float | int]]:
    if measured is None or not measured.bins:
        return []
    most = max(rows for *_, rows in measured.bins)
    return [
        {"sure": sure, "right": right, "rows": rows, "size": round(2.5 + 6.5 * math.sqrt(rows / most), 2)}
        for sure, right, rows in measured.bins
    ]


def comparison_table(found: Comparison) -> dict[str, Any]:
    """The table of a comparison: a row for each candidate, cells with what to sort by and what to show."""
    best = {column.name: _best(column) for column in found.columns}
    lines = []
    for i, name in enumerate(found.names):
        cells = [
            {"key": column.values[i], "shown": _cell(column, i), "best": i in best[column.name]}
            for column in found.columns
        ]
        lines.append({"name": name, "cells": cells, "link": found.links[i], "chosen": i == found.chosen,
                      "out": found.out.get(i, "")})  # fmt: skip
    rank = next((column for column in found.columns if column.name == "rank"), None)
    if rank is not None:
        last = float(len(lines) + 1)
        order = sorted(range(len(lines)), key=lambda i: (i != found.chosen, _number(rank.values[i], last)))
        lines = [lines[i] for i in order]
    legend: dict[str, list[str]] = {}
    for column in found.columns:
        if column.text:
            legend.setdefault(column.text, []).append(column.name)
    return {"columns": found.columns, "legend": legend, "lines": lines, "why": found.why, "notes": found.notes,
            "chosen": None if found.chosen is None else found.names[found.chosen]}  # fmt: skip


def _number(value: float | str | None, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise


def _best(column: Column) -> set[int]:
    values = [v for v in column.values if isinstance(v, int | float)]
    if not column.better or len(set(values)) < 2:
        return set()
    best = max(values) if column.better == "high" else min(values)
    return {i for i, value in enumerate(column.values) if value == best}


def _cell(column: Column, i: int) -> str:
    value = column.values[i]
    if value is None:
        return "–"
    if isinstance(value, str | bool):
        return str(value)
    return percent(value) if column.percent else nice_number(value)
