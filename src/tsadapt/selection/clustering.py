"""Do the classes that the network sees agree with the clusters of its features?"""

import warnings

import numpy as np

from tsadapt.selection.predictions import Predictions
from tsadapt.selection.validators import validator

__all__ = ["class_ami"]


@validator(
    "class-ami", higher=True, span="about 0 … 1", heavy=True, fails="favours tight clusters, even of the wrong classes"
)
def class_ami(p: Predictions) -> float:
    """Adjusted mutual information of predicted classes and a k-means of the features that starts from them.

    Features are scaled to length 1. One class for all has no clusters to agree with, and scores 0 (Musgrave et al.,
    2022).
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import adjusted_mutual_info_score

    guess = p.guess_t
    present = np.unique(guess)
    if len(present) < 2:
        return 0.0
    f = p.features_t / np.maximum(np.linalg.norm(p.features_t, axis=1, keepdims=True), 1e-12)
    centres = np.stack([f[guess == c].mean(0) for c in present])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than classes
        clusters = KMeans(len(present), init=centres, n_init=1, max_iter=100).fit_predict(f)
    return float(adjusted_mutual_info_score(guess, clusters))
