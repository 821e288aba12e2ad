"""The words of a short sweep."""

import json
from pathlib import Path

SHORT = ["--steps", "24", "--batch-size", "16", "--bottleneck", "8", "--quiet", "--lr", "0.05"]
GRID = ["--grid", "lambda0=0.1,0.25", "--grid", "beta=0.05,0.1"]
SWEEP = ["sweep", "source.npz", "target.npz", *GRID, *SHORT]


def choice(folder):
    return json.loads(Path(folder, "choice.json").read_text())
