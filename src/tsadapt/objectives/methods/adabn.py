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
    practice = (
        "It assumes that the domains differ by the mean and the spread of the network's activations: other light, "
        "contrast or sensors. It trains nothing on the target, so it cannot learn wrong labels, and it is the "
        "baseline that a trained method should beat. It hurts when the target has few rows or other class shares "
        "than the source, because its statistics are then those of these rows and classes. A network without batch "
        "normalisation has nothing to replace."
    )
    cost = "one pass; another over the target at the end"
    target_statistics = True
