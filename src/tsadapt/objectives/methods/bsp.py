"""BSP: adversarial training that keeps its features discriminable, by holding down their largest singular values."""

from torch import Tensor

from tsadapt.core import largest_singular_energy
from tsadapt.objectives.base import METHODS, Outputs
from tsadapt.objectives.methods.cdan import CDANE
from tsadapt.objectives.methods.dann import DANN

__all__ = ["BSP", "BSPDANN"]


def spectral_penalty(out: Outputs) -> Tensor:
    """s_1² of the source's features and of the target's: (B, K) each."""
    source, target = out.both()
    return largest_singular_energy(source.features) + largest_singular_energy(target.features)


@METHODS.register("bsp")
class BSP(CDANE):
    """Batch spectral penalisation on top of CDAN+E: δ (s_{s,1}² + s_{t,1}²), δ = 1e-4."""

    paper = "Chen et al., ICML 2019"
    practice = (
        "It is CDAN+E that holds down the largest singular value of each batch of features. It assumes that "
        "adversarial training keeps only the few strongest directions of the features, and that the others tell "
        "classes apart. It helps where classes are many or alike. It does little where the features are of few "
        "dimensions, and its weight is absolute: with larger features or batches the same weight presses more."
    )
    cost = "one pass; a discriminator on features times classes, the largest singular values"
    terms = ("domain", "spectral")

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """CDAN+E's term and the penalty."""
        return {**super().losses(out), "spectral": 1e-4 * spectral_penalty(out)}


@METHODS.register("bsp+dann")
class BSPDANN(DANN):
    """Batch spectral penalisation on top of DANN: δ (s_{s,1}² + s_{t,1}²), δ = 2e-4."""

    paper = "Chen et al., ICML 2019"
    practice = (
        "It is DANN that holds down the largest singular value of each batch of features, so that weaker "
        "directions, which tell classes apart, survive the adversary. It assumes and needs what DANN does: similar "
        "class shares in both domains. Its weight is absolute: with larger features or batches the same weight "
        "presses more."
    )
    cost = "one pass; a discriminator, the largest singular values"
    terms = ("domain", "spectral")

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """DANN's term and the penalty."""
        return {**super().losses(out), "spectral": 2e-4 * spectral_penalty(out)}
