"""L_M: TSA by M drawn copies of each feature instead of the closed form, to compare with it."""

from torch import Tensor

from tsadapt.core import sampled_cross_entropy
from tsadapt.objectives.base import SOURCE_TERMS, Head, Outputs
from tsadapt.objectives.source_terms.tsa import TowardsTarget
from tsadapt.settings import setting

__all__ = ["Sampled"]


@SOURCE_TERMS.register("sampled")
class Sampled(TowardsTarget):
    """TSA by drawn copies instead of the closed form, for comparison."""

    paper = "Li et al., CVPR 2021"
    practice = (
        "It assumes what `tsa` assumes, and its mean over many copies approaches the expectation that `tsa` bounds. "
        "It helps to check the bound and to see what the copies do. It is noisier and slower than the closed form, "
        "so train with `tsa`."
    )
    cost = "one pass; draws copies of every feature"

    samples: int = setting(8, "Copies drawn for each feature (M).", above=0)

    def of_head(self, i: int, head: Head, out: Outputs) -> Tensor:
        """L_M of one head."""
        return sampled_cross_entropy(
            head.source.features, out.labels(), head.weight, head.bias, *self.both(i, out), self.strength(out),
            self.samples, out.generator(), mean_shift=self.mean_shift, covariance=self.covariance, policy=self.policy,
            min_count=self.min_count, logits=head.source.logits, label_smoothing=self.label_smoothing,
        )  # fmt: skip
