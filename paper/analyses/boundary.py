"""Decision boundaries of networks on two moons."""

from pathlib import Path
from typing import Any

import numpy as np

from paper.protocols import our_encoder
from paper.results_file import Results, parts
from paper.rows import Row
from tsadapt.report.figures import Boundary, draw_boundaries
from tsadapt.training.setup import make_task

__all__ = ["boundary_of_run", "draw_moons"]

GRID = (61, 49)


def boundary_of_run(run: Path) -> dict[str, Any]:
    """Where a network of two moons sees which class: probabilities of class 1 on a grid, and the points."""
    import torch

    from tsadapt.runs.folder import RunFolder
    from tsadapt.runs.model import load

    config = RunFolder(run).config
    model = load(run, device="cpu", backbone=our_encoder(config))
    task = make_task(config)
    x_s, x_t = task.source.test.tensor.numpy(), task.target.test.tensor.numpy()
    both = np.concatenate([x_s, x_t])
    low, high = both.min(0) - 0.3, both.max(0) + 0.3
    xs, ys = (np.linspace(low[i], high[i], GRID[i]) for i in (0, 1))
    grid = torch.from_numpy(np.stack(np.meshgrid(xs, ys), -1).reshape(-1, 2).astype(np.float32))
    with torch.no_grad():
        share = model.network(grid)[1].softmax(1)[:, 1].numpy()
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


def draw_moons(results: Results, rows: list[Row], path: Path) -> None:
    """The boundaries of the first seed, a panel for each row."""
    from tsadapt.data.open import open_dataset

    first = min(parts(key).seed for key in results)
    x, y = (open_dataset(f"moons:source-{first}").train, open_dataset(f"moons:target-{first}").train)
    assert x.y is not None
    panels: dict[str, Boundary] = {}
    for row in rows:
        found = [run for key, run in results.items() if (parts(key).row, parts(key).seed) == (row.title, first)]
        if found:
            drawn = found[0]["boundary"]
            panels[f"{row.title}: {found[0]['accuracy']:.1f} % (seed {first})"] = Boundary(
                np.array(drawn["low"]), np.array(drawn["high"]), unpacked(drawn["share"])
            )
    draw_boundaries(panels, x.tensor.numpy(), x.y.numpy(), y.tensor.numpy(), path)
