"""No adaptation: the source term alone."""

from torch import Tensor

from tsadapt.objectives.base import METHODS, Method, Outputs

__all__ = ["SourceOnly"]


@METHODS.register("source-only")
class SourceOnly(Method):
    """No adaptation. With cross-entropy and no target term, the target is never forwarded."""

    practice = (
        "It learns the labelled source and looks at the target through target terms alone, if there are any. It "
        "assumes that the domains do not differ, or that the target terms bridge the gap. It is the baseline for "
        "what adaptation is worth, and the right choice where the shift is small or where nothing is known of the "
        "target's classes."
    )

    needs_target = False

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """No terms."""
        return {}
