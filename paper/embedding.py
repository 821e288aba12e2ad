"""Features in two dimensions, by t-SNE."""

from pathlib import Path
from typing import Any

import numpy as np

from paper.run_features import look_at

__all__ = ["in_two_dimensions", "plane_of_run"]

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
    look = look_at(run, MOST_ROWS)
    source, target = in_two_dimensions(look.f_s, look.f_t)
    return {
        "plane": {
            "source": np.round(source, 2).tolist(),
            "target": np.round(target, 2).tolist(),
        }
    }
