"""DAN: features whose kernel means agree between the domains."""

from typing import Any, Literal

from torch import Tensor

from tsadapt.core import multi_kernel_mmd
from tsadapt.errors import UserError
from tsadapt.objectives.base import METHODS, Context, Method, Outputs
from tsadapt.settings import setting

__all__ = ["DAN", "KernelMeans"]


def check_two_rows(method: str, context: Context) -> None:
    """Refuse batches of one row, before training: there is no spread in them to compare."""
    if min(context.batch_sizes) < 2:
        b_s, b_t = context.batch_sizes
        raise UserError(f"{method} needs 2 rows or more of each domain in a batch, received {b_s} and {b_t}.")


class KernelMeans(Method):
    """A method that compares the two batches by the means of a kernel."""

    mmd_estimator: Literal["unbiased", "linear"] = setting(
        "unbiased", "Estimate MMD by all pairs of rows, or by neighbours, at linear cost, which needs equal batches."
    )

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        check_two_rows(type(self).__name__, context)
        b_s, b_t = context.batch_sizes
        if self.mmd_estimator == "linear" and b_s != b_t:
            raise UserError(
                f"mmd_estimator linear needs equal batches, received {b_s} rows of the source and {b_t} of the target."
                " Set target_batch_size to batch_size, or mmd_estimator to unbiased."
            )


@METHODS.register("dan")
class DAN(KernelMeans):
    """Deep adaptation: brings the features' distributions together by their multi-kernel MMD.

        L = MMD²(f_s, f_t),   the sum of five Gaussian kernels, σ² = 2^k · mean ‖f − f'‖², k = −3…1

    No network of its own, and nothing reversed. The domains are forwarded one by one, as in the Transfer-Learning
    Library: each is normalised by itself, and MMD is left with what normalisation does not match.
    """

    paper = "Long et al., ICML 2015"
    practice = (
        "It assumes that the features of both domains can have one distribution without mixing classes. It compares "
        "the two batches by kernel means and needs no further network, so it is stable and cheap, and a good first "
        "choice for small shifts and small data. It hurts when the classes have other shares in the target: then "
        "equal features are wrong features. Batches of a few rows give noisy estimates."
    )
    cost = "one pass; distances of all pairs in the batch"
    terms = ("mmd",)
    separate_bn = True

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """MMD² of the features."""
        source, target = out.both()
        return {"mmd": multi_kernel_mmd(source.features, target.features, self.mmd_estimator)}
