"""Adapt embeddings: a table of labelled features, and another one, from elsewhere, without labels.

    python examples/embeddings.py

The "embeddings" here are pixels of real digits at 8×8: UCI's with labels, and MNIST's, whose labels only judge. Pixels
that are black in every image of the source are taken out of both domains first.
"""

import numpy as np
from sklearn.feature_selection import VarianceThreshold
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.nn import functional as F

from tsadapt import DomainAdaptationClassifier, TSAClassifier, make_adaptation_pipeline
from tsadapt.data.open import open_dataset


def pixels(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Digits as vectors of 64 numbers, and their labels."""
    domain = open_dataset(name).train
    assert domain.y is not None
    return F.adaptive_avg_pool2d(domain.tensor.float(), 8).flatten(1).numpy(), domain.y.numpy()


def main(steps: int = 1000, seed: int = 0) -> dict[str, float]:
    """Train, print and return target accuracies."""
    x_source, y_source = pixels("digits:uci")
    x_target, y_target = pixels("digits:mnist-5k")
    adapting = {
        "source-only": DomainAdaptationClassifier(steps=steps, random_state=seed),
        "+MI": DomainAdaptationClassifier(target_terms=("mi",), steps=steps, random_state=seed),
        "+TSA": TSAClassifier(steps=steps, random_state=seed),
    }
    plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x_source, y_source)
    accuracies = {"logistic regression": float(plain.score(x_target, y_target))}
    for name, clf in adapting.items():
        model = make_adaptation_pipeline(VarianceThreshold(), clf).fit(x_source, y_source, X_target=x_target)
        accuracies[name] = float(model.score(x_target, y_target))
    for name, accuracy in accuracies.items():
        print(f"{name:<20} {accuracy:.1%}")
    return accuracies


if __name__ == "__main__":
    main()
