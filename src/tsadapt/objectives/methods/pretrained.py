"""What methods have in common whose first steps train on the source alone."""

from typing import ClassVar

from tsadapt.objectives.base import Method
from tsadapt.settings import setting

__all__ = ["Pretrained"]


class Pretrained(Method):
    """A method in stages: the first steps minimise the source term and the target terms, as source-only would."""

    usual_pretraining: ClassVar[float] = 0.2

    pretraining: float | None = setting(
        None, "Share of the steps that train on the source first.", at_least=0, at_most=1,
        shown="0.5 for adda; 0.2 for etd and gsp",
    )  # fmt: skip

    def pretrains(self, progress: float) -> bool:
        """Whether the step that ends at this progress is one of them."""
        return progress <= (self.usual_pretraining if self.pretraining is None else self.pretraining)
