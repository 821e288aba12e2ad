"""The scikit-learn face."""

from tsadapt.estimator.domains import split_domains
from tsadapt.estimator.estimators import (
    ConstantFeaturesWarning,
    DomainAdaptationClassifier,
    NoTargetWarning,
    SourceOnlyWarning,
    TSAClassifier,
)
from tsadapt.estimator.pipeline import AdaptationPipeline, make_adaptation_pipeline
from tsadapt.estimator.scorer import ValidatorScorer

__all__ = [
    "AdaptationPipeline",
    "ConstantFeaturesWarning",
    "DomainAdaptationClassifier",
    "NoTargetWarning",
    "SourceOnlyWarning",
    "TSAClassifier",
    "ValidatorScorer",
    "make_adaptation_pipeline",
    "split_domains",
]
