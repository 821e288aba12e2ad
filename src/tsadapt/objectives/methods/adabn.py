"""AdaBN: source-only training, and batch normalisation by the statistics of the target."""

from tsadapt.objectives.base import METHODS
from tsadapt.objectives.methods.source_only import SourceOnly

__all__ = ["AdaBN"]


@METHODS.register("adabn")
class AdaBN(SourceOnly):
    """Adaptive batch normalisation: trained as source-only, then normalised by the target's mean and variance.

    Nothing is learned from the target, so this is the baseline to beat.
    """

    paper = "Li et al., 2016"
    target_statistics = True
