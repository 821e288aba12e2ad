"""The domain discriminator.

Shapes: B samples, K inputs.
"""

from torch import Tensor, nn

__all__ = ["Discriminator"]


class Discriminator(nn.Module):
    """K → hidden → hidden → 1 with ReLU and dropout (CDAN, BSP, JADA): a logit for each sample, high for the source."""

    def __init__(self, inputs: int, hidden: int, dropout: float = 0.5) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout(dropout)),
            *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(dropout)),
            nn.Linear(hidden, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B,) of inputs (B, K)."""
        d: Tensor = self.layers(x)
        return d.squeeze(1)
