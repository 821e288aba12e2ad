"""You have embeddings: a table of features with labels, and another one, from elsewhere, without.

    python examples/embeddings.py

Here the "embeddings" are the pixels of real digits at 8×8: UCI's, with labels, and MNIST's, whose labels only judge.
"""

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.nn import functional as F

from tsadapt import DomainAdaptationClassifier, TSAClassifier
from tsadapt.data.open import open_dataset


def pixels(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Digits as vectors of 64 numbers, and their labels."""
    domain = open_dataset(name).train
    assert domain.y is not None
    x = F.adaptive_avg_pool2d(domain.tensor.float(), 8).flatten(1)
    return x.numpy(), domain.y.numpy()


def main(steps: int = 1000, seed: int = 0) -> dict[str, float]:
    """Train, print and return target accuracies."""
    x_source, y_source = pixels("digits:uci")
    x_target, y_target = pixels("digits:mnist-5k")
    mi = DomainAdaptationClassifier(mi=True, steps=steps, random_state=seed)
    tsa = TSAClassifier(steps=steps, random_state=seed)
    fitted = {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(
            x_source, y_source
        ),
        "source-only": _source_only(steps, seed).fit(x_source, y_source),
        "+MI": mi.fit(x_source, y_source, X_target=x_target),
        "+TSA": tsa.fit(x_source, y_source, X_target=x_target),
    }
    accuracies = {name: float(clf.score(x_target, y_target)) for name, clf in fitted.items()}
    for name, accuracy in accuracies.items():
        print(f"{name:<20} {accuracy:.1%}")
    return accuracies


def _source_only(steps: int, seed: int) -> DomainAdaptationClassifier:
    warnings.filterwarnings("ignore", "There is no target")
    return DomainAdaptationClassifier(steps=steps, random_state=seed)


if __name__ == "__main__":
    main()
