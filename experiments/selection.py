"""How well hyper-parameters are chosen without target labels: pools of candidates on five tasks, all validators.

    python -m experiments.selection                 train what is missing, score the pools, make tables and picture
    python -m experiments.selection --jobs 2        two runs side by side
    python -m experiments.selection --score         score the pools whose runs are all there, without training
    python -m experiments.selection --table         only make tables and picture of what is there

A pool is the paper's λ0 × β grid on CDAN+E with TSA, and source-only. A tenth of the source is held out. PACS features are
read from TSADAPT_DATA. Runs lie under runs/selection and are never done twice; what is kept of a pool is a file under
experiments/results/selection. Accuracies are of the last step, and are there to judge the choices (oracle).
"""

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tsadapt.config import RunConfig
from tsadapt.engine.files import write_atomically, write_json
from tsadapt.selection.select import CONSENSUS, choose, oracle_judgement
from tsadapt.sweep.choice import oracle_accuracies, read_candidates, reference_among
from tsadapt.sweep.plan import PAPER_GRID, SOURCE_ONLY, Planned, grid, parse_axis
from tsadapt.sweep.runner import run_all

RESULTS = Path("experiments/results/selection")
RUNS = Path("runs/selection")


def pacs(domain: str) -> str:
    return str(Path(os.environ.get("TSADAPT_DATA", "")) / "features" / f"pacs_{domain}.npz")


TASKS = {
    "PACS photo → cartoon": (pacs("photo"), pacs("cartoon")),
    "UCI → MNIST-5k": ("digits:uci", "digits:mnist-5k"),
    "PACS art → cartoon": (pacs("art_painting"), pacs("cartoon")),
    "MNIST-5k → UCI": ("digits:mnist-5k", "digits:uci"),
    "PACS cartoon → photo": (pacs("cartoon"), pacs("photo")),
}


@dataclass(frozen=True)
class Pool:
    """The runs of a task; source-only is the first."""

    task: str
    planned: list[Planned]

    @property
    def key(self) -> str:
        return "-".join(word for word in self.task.lower().split() if word != "→")


def pool_of(task: str) -> Pool:
    source, target = TASKS[task]
    base = RunConfig(source, target, method="cdan+e", source_term="tsa", mi=True, holdout=0.1, device="cpu")
    settings = [SOURCE_ONLY, *grid(dict(map(parse_axis, PAPER_GRID)))]
    folder = RUNS / "-".join(word for word in task.lower().split() if word != "→")
    return Pool(task, [Planned.of(base, one, folder) for one in settings])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    for task in TASKS:
        pool = pool_of(task)
        failed = run_all(pool.planned, arguments.jobs)
        print(task, "done;", failed or "none failed", flush=True)


if __name__ == "__main__":
    main()
