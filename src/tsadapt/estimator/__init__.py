"""The scikit-learn face."""

from tsadapt.estimator.classifier import (
    DomainAdaptationClassifier,
    NoTargetWarning,
    SourceOnlyWarning,
    TSAClassifier,
)
from tsadapt.estimator.domains import split_domains
from tsadapt.estimator.scorer import ValidatorScorer

__all__ = [
    "DomainAdaptationClassifier",
    "NoTargetWarning",
    "SourceOnlyWarning",
    "TSAClassifier",
    "ValidatorScorer",
    "split_domains",
]
