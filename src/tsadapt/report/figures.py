"""Pictures of a run."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from tsadapt.engine.files import write_atomically

__all__ = ["draw_comparison", "draw_sensitivity"]


def draw_comparison(runs: dict[str, dict[str, Any]], classes: tuple[str, ...], title: str, path: Path) -> None:
    """Target accuracy of several runs as bars, and beside it the confusion matrix of each.

    `runs` maps a name to what `score` said of the target, with labels.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(runs) + 1, figsize=(3.6 * (len(runs) + 1), 3.9), layout="constrained")
    accuracies = [100 * run["accuracy"] for run in runs.values()]
    bars = axes[0].bar(list(runs), accuracies, color=["#90a4ae", "#64b5f6", "#1565c0"][: len(runs)])
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
    _write(figure, path)


def draw_sensitivity(surfaces: dict[str, dict[str, Any]], path: Path) -> None:
    """Target accuracy over λ0 and β, a map for each task, the chosen place framed.

    A surface has `rows` (λ0), `columns` (β), `accuracy` (%), `chosen` (a place, or None) and `source_only` (%).
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import Rectangle

    figure, axes = plt.subplots(
        1, len(surfaces), figsize=(3.3 * len(surfaces), 3.8), layout="constrained", squeeze=False
    )
    for axis, (task, surface) in zip(axes[0], surfaces.items(), strict=True):
        accuracy = surface["accuracy"]
        axis.imshow(accuracy, cmap="Blues", origin="lower", aspect="auto")
        dark = accuracy.min() + 0.6 * np.ptp(accuracy)
        for (i, j), value in np.ndenumerate(accuracy):
            axis.text(
                j, i, f"{value:.1f}", ha="center", va="center", color="white" if value > dark else "black", size=8
            )
        if surface["chosen"] is not None:
            i, j = surface["chosen"]
            axis.add_patch(Rectangle((j - 0.48, i - 0.48), 0.96, 0.96, fill=False, edgecolor="#e65100", linewidth=2.5))
        axis.set_xticks(range(len(surface["columns"])), surface["columns"])
        axis.set_yticks(range(len(surface["rows"])), surface["rows"])
        axis.set(xlabel="β", ylabel="λ₀", title=f"{task}\nsource-only {surface['source_only']:.1f}")
    _write(figure, path)


def _write(figure: Any, path: Path) -> None:
    from matplotlib import pyplot as plt

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=120, format="png")
    plt.close(figure)
    write_atomically(path, buffer.getvalue())
