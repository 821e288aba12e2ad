"""Pictures of augmented features."""

import textwrap
from pathlib import Path

from torch import Tensor

from tsadapt.report.figures import as_pixels, pyplot, write_figure

__all__ = ["draw_augmented", "draw_strip"]


def draw_augmented(columns: dict[str, Tensor], names: list[str], path: Path) -> None:
    """Images in named columns, a row for each source image with its class beside it."""
    plt = pyplot()
    rows = len(names)
    figure, axes = plt.subplots(
        rows, len(columns), figsize=(1.1 * len(columns) + 0.8, 1.0 * rows + 0.8), layout="constrained", squeeze=False
    )
    for j, (title, images) in enumerate(columns.items()):
        for i, image in enumerate(as_pixels(images)):
            axis = axes[i, j]
            axis.imshow(image)
            axis.set(xticks=(), yticks=())
            if i == 0:
                axis.set_title("\n".join(textwrap.wrap(title, 13)), fontsize=7, va="bottom")
            if j == 0:
                axis.set_ylabel(names[i], rotation=0, ha="right", va="center")
    write_figure(figure, path)


def draw_strip(source: Tensor, by_strength: dict[float, Tensor], names: list[str], path: Path) -> None:
    """The source image, and the augmented one at each strength λ, from left to right."""
    columns = {"source": source, **{f"λ = {strength:g}": images for strength, images in by_strength.items()}}
    draw_augmented(columns, names, path)
