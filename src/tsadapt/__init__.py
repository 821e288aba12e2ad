"""tsadapt: adapt a classifier from a labelled source domain to an unlabelled target domain.

The public names are loaded when first used, so that `import tsadapt` costs nothing.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsadapt.core import FeatureMemory, TSALoss, mutual_information_loss, transferable_cross_entropy
    from tsadapt.estimator import DomainAdaptationClassifier, TSAClassifier, ValidatorScorer

__version__ = version("tsadapt")

__all__ = [
    "DomainAdaptationClassifier",
    "FeatureMemory",
    "TSAClassifier",
    "TSALoss",
    "ValidatorScorer",
    "mutual_information_loss",
    "transferable_cross_entropy",
]

_ESTIMATORS = ("DomainAdaptationClassifier", "TSAClassifier", "ValidatorScorer")
_HOME = {name: "tsadapt.estimator" if name in _ESTIMATORS else "tsadapt.core" for name in __all__}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tsadapt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
