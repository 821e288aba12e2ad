"""What a step costs: several trainings take turns in one process, and medians are compared."""

import statistics
import time
from dataclasses import replace

import torch

from tsadapt.config import RunConfig
from tsadapt.engine.loop import Training
from tsadapt.engine.task import make_task
from tsadapt.models.build import build

__all__ = ["step_costs"]


def step_costs(configs: dict[str, RunConfig], rounds: int = 30) -> dict[str, float]:
    """Median milliseconds of a step of each, by name; for rows in memory."""
    trainings = {}
    for name, config in configs.items():
        task = make_task(replace(config, steps=max(config.steps or 0, rounds + 1)))
        torch.manual_seed(config.seed)
        source = task.source.train
        model = build(task.architecture, source.tensor if source.kind == "vector" else None)
        trainings[name] = Training(task.config, model, source, task.target.train.unlabelled(), task.prior)
        trainings[name].fill_memory()
        trainings[name].step()
    times: dict[str, list[float]] = {name: [] for name in configs}
    for _ in range(rounds):
        for name, training in trainings.items():
            began = time.perf_counter()
            training.step()
            times[name].append(time.perf_counter() - began)
    return {name: round(1000 * statistics.median(values), 2) for name, values in times.items()}
