"""tsadapt: adapt a classifier from a labelled source domain to an unlabelled target domain.

The public names are loaded when first used, so that `import tsadapt` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsadapt.core import FeatureMemory, TSALoss, mutual_information_loss, transferable_cross_entropy
    from tsadapt.estimator import (
        ConsensusSearchCV,
        DomainAdaptationClassifier,
        TSAClassifier,
        ValidatorScorer,
        make_adaptation_pipeline,
    )
    from tsadapt.runs.fit import fit
    from tsadapt.runs.model import TrainedModel, load

    __version__: str

__all__ = [
    "ConsensusSearchCV",
    "DomainAdaptationClassifier",
    "FeatureMemory",
    "TSAClassifier",
    "TSALoss",
    "TrainedModel",
    "ValidatorScorer",
    "fit",
    "load",
    "make_adaptation_pipeline",
    "mutual_information_loss",
    "transferable_cross_entropy",
]

_HOMES = {
    "tsadapt.core": ("FeatureMemory", "TSALoss", "mutual_information_loss", "transferable_cross_entropy"),
    "tsadapt.estimator": (
        "ConsensusSearchCV", "DomainAdaptationClassifier", "TSAClassifier", "ValidatorScorer",
        "make_adaptation_pipeline",
    ),
    "tsadapt.runs.fit": ("fit",),
    "tsadapt.runs.model": ("TrainedModel", "load"),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("tsadapt")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tsadapt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
