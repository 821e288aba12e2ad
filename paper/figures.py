"""The paper's figures, drawn from what was kept of the runs."""

from pathlib import Path
from typing import Any

import numpy as np

from paper.bias import estimation_bias
from paper.results_file import Kept, parts
from paper.rows import Row
from paper.tables import data_of_task
from tsadapt.config import RunConfig, read_config
from tsadapt.errors import counted
from tsadapt.report.figures import Boundary, Surface, draw_boundaries, draw_curves, draw_plane, draw_sensitivity
from tsadapt.training.setup import make_task

__all__ = ["boundary_of_run", "draw_bias", "draw_moons", "draw_planes", "draw_surfaces", "tell_bias", "watch_bias"]

GRID = (61, 49)


def watch_bias(config: RunConfig, work: Path, beside: Path, quick: bool) -> dict[str, Any]:
    """The errors of both estimates, epoch by epoch."""
    task = make_task(config)
    return {"epochs": estimation_bias(task, work / "bias" / config.hash()), **data_of_task(task)}


def tell_bias(kept: Kept) -> str:
    """Whether the memory's estimate is the closer one, for each task."""
    return "\n\n".join(
        _closer(task, runs) for task, runs in _by_task(kept).items() if len(next(iter(runs.values()))["epochs"]) > 1
    )


def _closer(task: str, runs: dict[int, dict[str, Any]]) -> str:
    told = []
    for sign, what in PARTS.items():
        missed = [
            (seed, epoch)
            for seed, run in runs.items()
            for epoch in run["epochs"][1:]
            if epoch["memory"][what] >= epoch["iterative"][what]
        ]
        points = sum(len(run["epochs"]) - 1 for run in runs.values())
        memory, iterative = (_mean_curve([*runs.values()], name, what)[1:] for name in ("memory", "iterative"))
        worst = ", ".join(
            f"seed {seed} epoch {e['epoch']}: {e['memory'][what]:.3g} against {e['iterative'][what]:.3g}"
            for seed, e in missed[:6]
        )
        told.append(
            f"For {sign} the memory's estimate is closer to the ideal than the iterative one at"
            f" {points - len(missed)} of {points} epochs after the first ({counted(len(runs), 'run')})"
            + (f", and not at {worst}{' …' if len(missed) > 6 else ''}" if missed else ": at every one")
            + f"; averaged over the runs at {int((memory < iterative).sum())} of {len(memory)}."
        )
    return f"{task}: " + " ".join(told)


PARTS = {"Δμ": "mean_difference", "Σ": "covariance"}


def _by_task(kept: Kept) -> dict[str, dict[int, dict[str, Any]]]:
    """The runs of each task, by their seeds."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for key, run in kept.items():
        _, task, seed = parts(key)
        found.setdefault(task, {})[seed] = run
    return found


def _mean_curve(runs: list[dict[str, Any]], name: str, what: str) -> np.ndarray:
    curve: np.ndarray = np.mean([[epoch[name][what] for epoch in run["epochs"]] for run in runs], axis=0)
    return curve


def draw_bias(kept: Kept, rows: list[Row], path: Path) -> None:
    """Mean over the seeds of both errors, over the epochs, two panels for each task."""
    curves = {
        f"{title}\n{task}, {counted(len(runs), 'seed')}": {
            name: _mean_curve([*runs.values()], name, what) for name in ("iterative", "memory")
        }
        for task, runs in _by_task(kept).items()
        for title, what in (("mean difference Δμ", "mean_difference"), ("target covariance Σ", "covariance"))
    }
    draw_curves(curves, "epoch", "distance to the ideal estimate", path)


def boundary_of_run(run: Path) -> dict[str, Any]:
    """Where a network of two moons sees which class: probabilities of class 1 on a grid, and the points."""
    import torch

    from tsadapt.runs.model import load_model

    config = read_config(run / "config.toml")
    task, saved = make_task(config), load_model(run, torch.device("cpu"))
    x_s, x_t = task.source.test.tensor.numpy(), task.target.test.tensor.numpy()
    both = np.concatenate([x_s, x_t])
    low, high = both.min(0) - 0.3, both.max(0) + 0.3
    xs, ys = (np.linspace(low[i], high[i], GRID[i]) for i in (0, 1))
    grid = torch.from_numpy(np.stack(np.meshgrid(xs, ys), -1).reshape(-1, 2).astype(np.float32))
    with torch.no_grad():
        share = saved.model(grid)[1].softmax(1)[:, 1].numpy()
    return {
        "boundary": {
            "low": low.round(3).tolist(),
            "high": high.round(3).tolist(),
            "share": packed(share.reshape(GRID[1], GRID[0])),
        }
    }


def packed(shares: np.ndarray) -> list[str]:
    """Numbers from 0 to 1 as one printable character each, a string a row; see `unpacked`.

    >>> unpacked(packed(np.array([[0.0, 0.5, 1.0]]))).tolist()
    [[0.0, 0.5, 1.0]]
    """
    return ["".join(chr(ord("#") + round(90 * float(value))) for value in row) for row in shares]


def unpacked(rows: list[str]) -> np.ndarray:
    """The numbers again, to the 90th."""
    return np.array([[(ord(letter) - ord("#")) / 90 for letter in row] for row in rows])


def draw_moons(kept: Kept, rows: list[Row], path: Path) -> None:
    """The boundaries of the first seed, a panel for each row."""
    from tsadapt.data.open import open_dataset

    first = min(parts(key).seed for key in kept)
    x, y = (open_dataset(f"moons:source-{first}").train, open_dataset(f"moons:target-{first}").train)
    assert x.y is not None
    panels: dict[str, Boundary] = {}
    for row in rows:
        found = [run for key, run in kept.items() if (parts(key).row, parts(key).seed) == (row.title, first)]
        if found:
            said = found[0]["boundary"]
            panels[f"{row.title}: {found[0]['accuracy']:.1f} % (seed {first})"] = Boundary(
                np.array(said["low"]), np.array(said["high"]), unpacked(said["share"])
            )
    draw_boundaries(panels, x.tensor.numpy(), x.y.numpy(), y.tensor.numpy(), path)


def draw_planes(kept: Kept, rows: list[Row], path: Path) -> None:
    """t-SNE of both domains' features, a panel for each row."""
    panels = {}
    for row in rows:
        for key, run in kept.items():
            title, task, seed = parts(key)
            if title == row.title:
                plane = run["plane"]
                title = f"{title}: {run['accuracy']:.1f} %\n{task}, seed {seed}"
                panels[title] = (np.array(plane["source"]), np.array(plane["target"]))
    draw_plane(panels, path)


def draw_surfaces(kept: Kept, rows: list[Row], path: Path) -> None:
    """Accuracy over λ0 and β, a map for each task that has all its runs; λ0 = 0 is mutual information alone."""
    points = {
        (row.settings.get("lambda0", 0), row.settings["beta"]): row.title for row in rows if "beta" in row.settings
    }
    strengths, betas = (sorted({point[i] for point in points}) for i in (0, 1))
    surfaces = {}
    for column in dict.fromkeys(parts(key).column for key in kept):
        by_row: dict[str, list[float]] = {}
        for key, run in kept.items():
            if parts(key).column == column:
                by_row.setdefault(parts(key).row, []).append(run["accuracy"])
        found = {title: float(np.mean(values)) for title, values in by_row.items()}
        others = [row.title for row in rows if "beta" not in row.settings]
        if all(title in found for title in (*points.values(), *others)):
            accuracy = np.array([[found[points[l0, beta]] for beta in betas] for l0 in strengths])
            surfaces[column] = Surface(strengths, betas, accuracy, {title: found[title] for title in others})
    if surfaces:
        draw_sensitivity(surfaces, path)
