"""Deep CORAL: features whose covariances agree between the domains."""

from typing import Any

from torch import Tensor

from tsadapt.core import covariance_distance
from tsadapt.objectives.base import METHODS, Context, Method, Outputs
from tsadapt.objectives.methods.dan import check_two_rows

__all__ = ["CORAL"]


@METHODS.register("coral")
class CORAL(Method):
    """Deep CORAL: brings the covariances of the features together: ‖C_s − C_t‖_F²/(4K²).

    Means stay as they are. The paper weights the term so that it ends as large as the cross-entropy; here the weight is
    1, and `--term-weight coral=…` changes it. The domains are forwarded together: the paper's network has no batch
    normalisation, and normalised apart, they agree in their variances already.
    """

    paper = "Sun & Saenko, ECCV Workshops 2016"
    practice = (
        "It assumes that the shift is one of spread and correlation: it matches covariances and leaves means alone. "
        "It helps with changes of contrast, noise or sensor that act on all classes alike. It does little where the "
        "domains differ by their means, and next to nothing at its default weight if the features are many and "
        "small; raise the weight then. A very large weight shrinks all features."
    )
    cost = "one pass; the covariances of the features"
    terms = ("coral",)

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        check_two_rows("CORAL", context)

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """The distance of the covariances."""
        source, target = out.both()
        return {"coral": covariance_distance(source.features, target.features)}
