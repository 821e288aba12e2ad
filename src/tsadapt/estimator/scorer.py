"""Validators as scorers of scikit-learn's searches."""

from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRequest

from tsadapt.estimator.domains import split_domains
from tsadapt.selection import VALIDATORS
from tsadapt.selection.predictions import Predictions

__all__ = ["ValidatorScorer"]


class ValidatorScorer:
    """A label-free validator as a scorer for GridSearchCV and friends; more is better, whatever its own sign.

    Rows of the target (negative `sample_domain`, or all rows where none is given) are scored without their labels; rows
    of the source, which the search held out, serve the validators that need some. For example
    `GridSearchCV(TSAClassifier(), {"beta": [0.05, 0.1]}, scoring=ValidatorScorer("im"))`.
    """

    def __init__(self, name: str = "im") -> None:
        alone = [known for known in VALIDATORS if VALIDATORS[known].alone is not None]
        if name not in alone:
            raise ValueError(f"validator is {name!r}, expected one that scores a model by itself: {', '.join(alone)}.")
        self.validator = VALIDATORS[name]

    def get_metadata_routing(self) -> MetadataRequest:
        """What a search hands on: the domains of the rows."""
        request = MetadataRequest(owner=self)
        request.score.add_request(param="sample_domain", alias=True)
        return request

    def __call__(self, estimator: Any, X: Any, y: Any = None, sample_domain: Any = None) -> float:
        """The score of a fitted estimator (or a pipeline that ends in one) on rows it was not trained on."""
        if y is not None and sample_domain is None:
            raise ValueError(
                "The scorer received y but no sample_domain, so it cannot know the target rows. In a search,"
                " turn on sklearn.set_config(enable_metadata_routing=True), ask for"
                " set_fit_request(sample_domain=True), and give sample_domain to fit."
            )
        before, last = (estimator[:-1], estimator[-1]) if isinstance(estimator, Pipeline) else (None, estimator)
        rows = X if before is None or not len(before) else before.transform(X)
        features, logits = last.transform(rows), last._logits(rows)
        is_target = np.ones(len(logits), dtype=bool) if sample_domain is None else split_domains(sample_domain)[1]
        if not is_target.any():
            raise ValueError("No target rows to score: sample_domain has no negative number.")
        held = ~is_target
        if y is not None:  # a class that the fold did not train on has no place among its outputs
            held &= np.isin(np.asarray(y), last.classes_)
        if self.validator.needs_holdout and not held.any():
            raise ValueError(f"{self.validator.name} needs rows of the source that training did not see.")
        labels = np.zeros(0, dtype=np.int64) if y is None else np.searchsorted(last.classes_, np.asarray(y)[held])
        predictions = Predictions(
            features_s=last.source_features_, features_v=features[held], logits_v=logits[held], labels_v=labels,
            features_t=features[is_target], logits_t=logits[is_target], weight=last._weights(),
        )  # fmt: skip
        return float(self.validator.goodness(self.validator.scores([predictions]))[0])
