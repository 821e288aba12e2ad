"""Features in two dimensions, by t-SNE."""

from pathlib import Path
from typing import Any

import numpy as np

from paper.analyses.run_features import features_of_run
from paper.results_file import Results, parts
from paper.rows import Row
from tsadapt.report.figures import draw_plane

__all__ = ["draw_planes", "in_two_dimensions", "plane_of_run"]

MOST_ROWS = 1000


def in_two_dimensions(f_s: np.ndarray, f_t: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Both domains' features (N, K) in one plane: (N_s, 2) and (N_t, 2); first to 50 by PCA where K is larger."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    f = np.concatenate([f_s, f_t]).astype(np.float64)
    if min(f.shape) > 50:
        f = PCA(50, random_state=seed).fit_transform(f)
    plane = TSNE(2, perplexity=min(30, (len(f) - 1) / 3), init="pca", random_state=seed).fit_transform(f)
    return plane[: len(f_s)], plane[len(f_s) :]


def plane_of_run(run: Path) -> dict[str, Any]:
    """The features of a finished run in a plane."""
    features = features_of_run(run, MOST_ROWS)
    source, target = in_two_dimensions(features.f_s, features.f_t)
    return {
        "plane": {
            "source": np.round(source, 2).tolist(),
            "target": np.round(target, 2).tolist(),
        }
    }


def draw_planes(results: Results, rows: list[Row], path: Path) -> None:
    """t-SNE of both domains' features, a panel for each row."""
    panels = {}
    for row in rows:
        for key, run in results.items():
            title, task, seed = parts(key)
            if title == row.title:
                plane = run["plane"]
                title = f"{title}: {run['accuracy']:.1f} %\n{task}, seed {seed}"
                panels[title] = (np.array(plane["source"]), np.array(plane["target"]))
    draw_plane(panels, path)
