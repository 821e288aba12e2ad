"""No adaptation: the source term alone."""

from torch import Tensor

from tsadapt.objectives.base import METHODS, Method, Outputs

__all__ = ["SourceOnly"]


@METHODS.register("source-only")
class SourceOnly(Method):
    """No adaptation. With cross-entropy and no target term, the target is never forwarded."""

    needs_target = False

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """No terms."""
        return {}
