"""What a step costs: several trainings take turns in one process, and medians are compared."""

import statistics
import time
from dataclasses import replace

import torch

from tsadapt.config import RunConfig
from tsadapt.runs.fit import make_training
from tsadapt.training.setup import make_task
from tsadapt.training.trainer import Training

__all__ = ["step_costs"]


def step_costs(configs: dict[str, RunConfig], rounds: int = 30) -> dict[str, float]:
    """Median milliseconds of a step of each, by name."""
    trainings = {}
    for name, config in configs.items():
        trainings[name] = make_training(make_task(replace(config, steps=max(config.steps or 0, rounds + 1))))
        trainings[name].fill_memory()
        trainings[name].step()
    times: dict[str, list[float]] = {name: [] for name in configs}
    for _ in range(rounds):
        for name, training in trainings.items():
            began = _now(training)
            training.step()
            times[name].append(_now(training) - began)
    return {name: round(1000 * statistics.median(values), 2) for name, values in times.items()}


def _now(training: Training) -> float:
    """The time when all that was asked of the device is done: a GPU works on while Python goes ahead."""
    if training.device.type == "cuda":
        torch.cuda.synchronize(training.device)
    return time.perf_counter()
