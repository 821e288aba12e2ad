"""Networks for digits: those of MCD (Saito et al., 2018) and CDAN (Long et al., 2018), and a small one for 16×16.

Each gives a backbone, a bottleneck, the number of features K, and the dropout before the head. What MCD calls the
classifier is a stack of layers; its last one is our head and the rest our bottleneck, so that the head is linear in
the features. MCD applies ReLU before it pools: the other way round gives the same bits, with a quarter of ReLU's work.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

__all__ = ["DIGIT_NETWORKS", "Body", "DigitNetwork"]


@dataclass(frozen=True)
class Body:
    """A network without its head."""

    backbone: nn.Module
    bottleneck: nn.Module
    dim: int
    dropout: float = 0.0


@dataclass(frozen=True)
class DigitNetwork:
    """What a digit network takes, and how it is made."""

    channels: int
    size: int
    make: Callable[[], Body]
    crop: tuple[int, int] | None = None


def _small() -> Body:
    """16×16: two convolutions 3×3 of 16 and 32 channels, 64 features."""
    backbone = nn.Sequential(*_pooled(1, 16, 3, padding=1), *_pooled(16, 32, 3, padding=1), nn.Flatten())
    return Body(backbone, nn.Sequential(*_dense(32 * 4 * 4, 64)), 64)


def _mcd_28() -> Body:
    """MCD's "USPS" network, 1×28×28, 100 features."""
    backbone = nn.Sequential(*_pooled(1, 32, 5), *_pooled(32, 48, 5), nn.Flatten())
    bottleneck = nn.Sequential(nn.Dropout(), *_dense(48 * 4 * 4, 100), nn.Dropout(), *_dense(100, 100))
    return Body(backbone, bottleneck, 100, dropout=0.5)


def _mcd_32() -> Body:
    """MCD's "SVHN" network, 3×32×32, 2048 features."""

    def halved(inputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, 64, 5, padding=2), nn.BatchNorm2d(64), nn.MaxPool2d(3, 2, 1), nn.ReLU()]

    backbone = nn.Sequential(
        *halved(3), *halved(64), nn.Conv2d(64, 128, 5, padding=2), nn.BatchNorm2d(128), nn.ReLU(), nn.Flatten(),
        *_dense(8192, 3072), nn.Dropout(),
    )  # fmt: skip
    return Body(backbone, nn.Sequential(*_dense(3072, 2048)), 2048)


def _lenet() -> Body:
    """CDAN's LeNet, 1×28×28, 500 features."""
    backbone = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(20, 50, 5), nn.Dropout2d(), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
    )  # fmt: skip
    return Body(backbone, nn.Sequential(nn.Linear(800, 500), nn.ReLU()), 500, dropout=0.5)


def _dtn() -> Body:
    """CDAN's DTN, 3×32×32, 512 features."""

    def strided(inputs: int, outputs: int, dropout: float) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 5, stride=2, padding=2)
        return [convolution, nn.BatchNorm2d(outputs), nn.Dropout2d(dropout), nn.ReLU()]

    backbone = nn.Sequential(*strided(3, 64, 0.1), *strided(64, 128, 0.3), *strided(128, 256, 0.5), nn.Flatten())
    return Body(backbone, nn.Sequential(*_dense(4096, 512)), 512, dropout=0.5)


def _pooled(inputs: int, outputs: int, kernel: int, padding: int = 0) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, padding=padding)
    return [convolution, nn.BatchNorm2d(outputs), nn.MaxPool2d(2), nn.ReLU()]


def _dense(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]


DIGIT_NETWORKS = {
    "small-16": DigitNetwork(1, 16, _small, crop=(28, 20)),
    "mcd-28": DigitNetwork(1, 28, _mcd_28),
    "mcd-32": DigitNetwork(3, 32, _mcd_32),
    "lenet": DigitNetwork(1, 28, _lenet),
    "dtn": DigitNetwork(3, 32, _dtn),
}
