"""Accuracy over λ0 and β."""

from pathlib import Path

import numpy as np

from paper.results_file import Results, parts
from paper.rows import Row
from tsadapt.report.figures import Surface, draw_sensitivity

__all__ = ["draw_surfaces"]


def draw_surfaces(results: Results, rows: list[Row], path: Path) -> None:
    """Accuracy over λ0 and β, a map for each task that has all its runs; λ0 = 0 is mutual information alone."""
    points = {
        (row.settings.get("lambda0", 0), row.settings["beta"]): row.title for row in rows if "beta" in row.settings
    }
    strengths, betas = (sorted({point[i] for point in points}) for i in (0, 1))
    surfaces = {}
    for column in dict.fromkeys(parts(key).column for key in results):
        by_row: dict[str, list[float]] = {}
        for key, run in results.items():
            if parts(key).column == column:
                by_row.setdefault(parts(key).row, []).append(run["accuracy"])
        found = {title: float(np.mean(values)) for title, values in by_row.items()}
        others = [row.title for row in rows if "beta" not in row.settings]
        if all(title in found for title in (*points.values(), *others)):
            accuracy = np.array([[found[points[l0, beta]] for beta in betas] for l0 in strengths])
            surfaces[column] = Surface(strengths, betas, accuracy, {title: found[title] for title in others})
    if surfaces:
        draw_sensitivity(surfaces, path)
