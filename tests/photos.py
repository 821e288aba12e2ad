"""Small made photographs: a bright square at a place that tells the class, on noise of the domain's own tint."""

from pathlib import Path

import numpy as np
from PIL import Image

from tsadapt.data.transforms import Framing

CLASSES = ("ant", "bee", "cow")

# A tiny backbone, and runs that take a moment.
TINY = "test_efficientnet"
FRAMING = Framing(32, 36)
SHORT = {"steps": 12, "batch_size": 6, "bottleneck": 8, "lr": 0.05, "log_every": 4, "checkpoint_every": 5}
SEE = ["--backbone", TINY, "--weights", "none", "--image-size", "32"]
QUICK = ["--steps", "12", "--batch-size", "6", "--bottleneck", "8", "--quiet"]


def picture(label: int, seed: int, tint: int = 40, size: tuple[int, int] = (40, 30)) -> Image.Image:
    rng = np.random.default_rng([label, seed, tint])
    pixels = rng.integers(0, tint, (size[1], size[0], 3), dtype=np.uint8)
    left = 2 + 12 * label
    pixels[8:18, left : left + 10, label] = 230
    return Image.fromarray(pixels)


def write_classes(root: Path, n: int = 8, classes: tuple[str, ...] = CLASSES, tint: int = 40) -> Path:
    """root/class/00.png …"""
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(n):
            picture(label % 3, i, tint).save(root / name / f"{i:02d}.png")
    return root


def write_flat(root: Path, n: int = 8, tint: int = 90) -> Path:
    """root/0-00.png …, in which the first number is the class that nobody is told."""
    root.mkdir(parents=True, exist_ok=True)
    for label in range(3):
        for i in range(n):
            picture(label, i, tint).save(root / f"{label}-{i:02d}.png")
    return root


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])
