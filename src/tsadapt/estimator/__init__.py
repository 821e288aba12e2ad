"""The scikit-learn face. Its names are loaded when first used: those without torch are there at once."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from tsadapt.estimator.search import ConsensusSearchCV

__all__ = [
    "AdaptationPipeline",
    "ConsensusSearchCV",
    "ConstantFeaturesWarning",
    "DomainAdaptationClassifier",
    "NoTargetWarning",
    "SourceOnlyWarning",
    "TSAClassifier",
    "ValidatorScorer",
    "make_adaptation_pipeline",
    "split_domains",
]

_HOMES = {
    "domains": ("split_domains",),
    "estimators": (
        "ConstantFeaturesWarning", "DomainAdaptationClassifier", "NoTargetWarning", "SourceOnlyWarning",
        "TSAClassifier",
    ),
    "pipeline": ("AdaptationPipeline", "make_adaptation_pipeline"),
    "scorer": ("ValidatorScorer",),
    "search": ("ConsensusSearchCV",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"tsadapt.estimator.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tsadapt.estimator' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
