"""Pictures of a run."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tsadapt.files import write_atomically

__all__ = [
    "SOURCE",
    "TARGET",
    "Boundary",
    "Surface",
    "as_pixels",
    "draw_boundaries",
    "draw_comparison",
    "draw_curves",
    "draw_plane",
    "draw_sensitivity",
    "pyplot",
    "write_figure",
    "write_sheet",
]

SOURCE, TARGET = "#1e66b4", "#c62828"
"""Blue and red, as the paper has them."""


def draw_comparison(runs: dict[str, dict[str, Any]], classes: tuple[str, ...], title: str, path: Path) -> None:
    """Target accuracy of several runs as bars, and beside it the confusion matrix of each.

    `runs` maps a name to what `score` said of the target, with labels.
    """
    plt = pyplot()
    figure, axes = plt.subplots(1, len(runs) + 1, figsize=(3.6 * (len(runs) + 1), 3.9), layout="constrained")
    accuracies = [100 * run["accuracy"] for run in runs.values()]
    bars = axes[0].bar(list(runs), accuracies, color=["#90a4ae", "#b0bec5", "#64b5f6", "#1565c0"][: len(runs)])
    axes[0].bar_label(bars, fmt="%.1f", padding=2)
    axes[0].set(ylim=(0, 105), ylabel="target accuracy, %", title=title)
    axes[0].spines[["top", "right"]].set_visible(False)
    for axis, (name, run) in zip(axes[1:], runs.items(), strict=True):
        confusion = np.array(run["confusion"], dtype=float)
        share = confusion / np.maximum(confusion.sum(1, keepdims=True), 1)
        axis.imshow(share, vmin=0, vmax=1, cmap="Blues")
        ticks = range(len(classes))
        axis.set(title=name, xlabel="predicted", ylabel="true", xticks=ticks, yticks=ticks)
        axis.set_xticklabels(classes, rotation=0 if max(map(len, classes)) < 3 else 90)
        axis.set_yticklabels(classes)
    write_figure(figure, path)


@dataclass(frozen=True)
class Surface:
    """Target accuracies (%) over λ0 (rows) and β (columns), those of other runs by name, and the chosen place."""

    strengths: list[float]
    betas: list[float]
    accuracy: np.ndarray
    beside: dict[str, float]
    chosen: tuple[int, int] | None = None


def draw_sensitivity(surfaces: dict[str, Surface], path: Path) -> None:
    """Target accuracy over λ0 and β, a map for each task, the chosen place framed."""
    from matplotlib.patches import Rectangle

    plt = pyplot()
    figure, axes = plt.subplots(
        1, len(surfaces), figsize=(3.3 * len(surfaces), 3.8), layout="constrained", squeeze=False
    )
    for axis, (task, surface) in zip(axes[0], surfaces.items(), strict=True):
        accuracy = surface.accuracy
        axis.imshow(accuracy, cmap="Blues", origin="lower", aspect="auto")
        dark = accuracy.min() + 0.6 * np.ptp(accuracy)
        for (i, j), value in np.ndenumerate(accuracy):
            axis.text(
                j, i, f"{value:.1f}", ha="center", va="center", color="white" if value > dark else "black", size=8
            )
        if surface.chosen is not None:
            i, j = surface.chosen
            axis.add_patch(Rectangle((j - 0.48, i - 0.48), 0.96, 0.96, fill=False, edgecolor="#e65100", linewidth=2.5))
        axis.set_xticks(range(len(surface.betas)), map(str, surface.betas))
        axis.set_yticks(range(len(surface.strengths)), map(str, surface.strengths))
        beside = ", ".join(f"{name} {value:.1f}" for name, value in surface.beside.items())
        axis.set(xlabel="β", ylabel="λ₀")
        axis.set_title(f"{task}\n{beside}", fontsize=10)
    figure.suptitle("target accuracy, %", fontsize=10)
    write_figure(figure, path)


def draw_curves(panels: dict[str, dict[str, Any]], x: str, y: str, path: Path) -> None:
    """Several curves over 1, 2, …, a panel for each group of them."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.3), layout="constrained", squeeze=False)
    for axis, (title, curves) in zip(axes[0], panels.items(), strict=True):
        for (name, values), colour in zip(curves.items(), ("#e65100", SOURCE, "#2e7d32"), strict=False):
            axis.plot(range(1, len(values) + 1), values, label=name, color=colour)
        axis.set(title=title, xlabel=x, ylabel=y, ylim=(0, None))
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False)
    write_figure(figure, path)


@dataclass(frozen=True)
class Boundary:
    """The probability of the second class (rows, columns) over the rectangle from `low` to `high`."""

    low: np.ndarray
    high: np.ndarray
    share: np.ndarray


def draw_boundaries(panels: dict[str, Boundary], x_s: np.ndarray, y_s: np.ndarray, x_t: np.ndarray, path: Path) -> None:
    """Where networks of two inputs see which class, with the source's points by class and the target's in blue."""
    plt = pyplot()
    wide = min(len(panels), 3)
    high = -(-len(panels) // wide)
    figure, axes = plt.subplots(
        high, wide, figsize=(3.5 * wide, 2.9 * high), layout="constrained", squeeze=False, sharex=True, sharey=True
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (title, boundary) in zip(axes.flat, panels.items(), strict=False):
        extent = (boundary.low[0], boundary.high[0], boundary.low[1], boundary.high[1])
        xs, ys = (np.linspace(boundary.low[i], boundary.high[i], boundary.share.shape[1 - i]) for i in (0, 1))
        axis.contourf(xs, ys, boundary.share, levels=(-0.01, 0.5, 1.01), colors=("#f9dedc", "#ddefdc"))
        axis.contour(xs, ys, boundary.share, levels=(0.5,), colors="black", linewidths=1.2)
        for label, colour in ((0, "#c62828"), (1, "#2e7d32")):
            axis.scatter(*x_s[y_s == label].T, s=5, color=colour, label=f"source, class {label}")
        axis.scatter(*x_t.T, s=5, color=SOURCE, alpha=0.6, label="target")
        axis.set(title=title, xticks=(), yticks=(), xlim=extent[:2], ylim=extent[2:])
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    write_figure(figure, path)


def draw_plane(panels: dict[str, tuple[np.ndarray, np.ndarray]], path: Path) -> None:
    """Points of the source (blue) and of the target (red) in a plane, a panel for each name, at most three abreast."""
    plt = pyplot()
    columns, rows = min(len(panels), 3), -(-len(panels) // 3)
    size = (3.3 * columns, 3.3 * rows + 0.3)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    for axis, (title, (source, target)) in zip(axes.flat, panels.items(), strict=False):
        axis.scatter(*source.T, s=4, color=SOURCE, alpha=0.6, label="source")
        axis.scatter(*target.T, s=4, color=TARGET, alpha=0.6, label="target")
        axis.set(title=title, xticks=(), yticks=())
    figure.suptitle("features in a plane by t-SNE, and target accuracy", fontsize=10)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    write_figure(figure, path)


def write_sheet(images: Tensor, path: Path, columns: int = 8, scale: int = 2) -> None:
    """Images (N, channels, H, W) with values from −1 to 1 as one PNG, row by row."""
    from PIL import Image

    n, _, height, width = images.shape
    rows = -(-n // columns)
    pixels = np.full((rows * (height + 2), columns * (width + 2), 3), 255, dtype=np.uint8)
    for i, image in enumerate(as_pixels(images)):
        top, left = i // columns * (height + 2), i % columns * (width + 2)
        pixels[top : top + height, left : left + width] = image
    sheet = Image.fromarray(pixels)
    buffer = io.BytesIO()
    sheet.resize((scale * sheet.width, scale * sheet.height), Image.Resampling.NEAREST).save(buffer, "PNG")
    write_atomically(path, buffer.getvalue())


def as_pixels(images: Tensor) -> np.ndarray:
    """Images from −1 to 1 (N, channels, H, W) → (N, H, W, 3) as bytes; grey ones get three equal channels."""
    colours = images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images
    return ((colours.detach().cpu().clamp(-1, 1) + 1) * 127.5).round().byte().permute(0, 2, 3, 1).numpy()


def pyplot() -> Any:
    """Matplotlib without a screen."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def write_figure(figure: Any, path: Path) -> None:
    """Save a figure as PNG, whole or not at all, and let it go."""
    from matplotlib import pyplot as plt

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=120, format="png")
    plt.close(figure)
    write_atomically(path, buffer.getvalue())
