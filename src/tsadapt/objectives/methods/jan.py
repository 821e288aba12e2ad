"""JAN: features and predictions whose joint kernel means agree between the domains."""

from torch import Tensor
from torch.nn import functional as F

from tsadapt.core import joint_mmd
from tsadapt.objectives.base import METHODS, Outputs
from tsadapt.objectives.methods.dan import KernelMeans

__all__ = ["JAN"]


@METHODS.register("jan")
class JAN(KernelMeans):
    """Joint adaptation: brings features and predictions together by the MMD of the product of their kernels.

        L = MMD²((f_s, p_s), (f_t, p_t)),   k = k_f · k_p

    k_f are DAN's five kernels, k_p is one Gaussian of σ = 0.92 on p = softmax(ŷ), and gradients flow through both.
    The adversarial maps of JAN-A are left out. The domains are forwarded together, as in the Transfer-Learning Library.
    """

    paper = "Long et al., ICML 2017"
    practice = (
        "It assumes that features and predictions together can have one distribution in both domains, so it holds a "
        "class of the source near what is predicted as that class in the target. It helps where DAN mixes classes. "
        "It hurts when the first predictions on the target are mostly wrong, since it then holds on to them, and "
        "under other class shares like DAN."
    )
    cost = "one pass; distances of all pairs in the batch"
    terms = ("joint_mmd",)

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """MMD² of features and predictions."""
        source, target = out.both()
        p_s, p_t = F.softmax(source.logits, dim=1), F.softmax(target.logits, dim=1)
        value = joint_mmd(source.features, target.features, p_s, p_t, estimator=self.mmd_estimator)
        return {"joint_mmd": value}
