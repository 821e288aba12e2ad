"""A task and the words of a short sweep of it."""

import json
from pathlib import Path

import pytest
from tests.runs.conftest import write_task

SHORT = ["--steps", "24", "--batch-size", "16", "--bottleneck", "8", "--quiet", "--lr", "0.05"]
GRID = ["--grid", "lambda0=0.1,0.25", "--grid", "beta=0.05,0.1"]
SWEEP = ["sweep", "source.npz", "target.npz", *GRID, *SHORT]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    return tmp_path


def choice(folder):
    return json.loads(Path(folder, "choice.json").read_text())
