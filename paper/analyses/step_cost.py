"""What a step costs: several trainers take turns in one process, and medians are compared."""

import statistics
import time
from dataclasses import replace
from typing import Any

import torch

from paper.analyses.section import Section, configs_of_rows, measured_before, with_hashes
from paper.protocols import Protocol
from paper.published import Published
from paper.results_file import Results
from paper.rows import Row
from tsadapt.config import RunConfig
from tsadapt.training.setup import make_task, make_trainer
from tsadapt.training.trainer import Trainer

__all__ = ["costs", "step_costs"]


def step_costs(configs: dict[str, RunConfig], rounds: int = 30) -> dict[str, float]:
    """Median milliseconds of a step of each, by name."""
    trainers = {}
    for name, config in configs.items():
        trainers[name] = make_trainer(make_task(replace(config, steps=max(config.steps or 0, rounds + 1))))
        trainers[name].fill_memory()
        trainers[name].step()
    times: dict[str, list[float]] = {name: [] for name in configs}
    for _ in range(rounds):
        for name, trainer in trainers.items():
            began = _now(trainer)
            trainer.step()
            times[name].append(_now(trainer) - began)
    return {name: round(1000 * statistics.median(values), 2) for name, values in times.items()}


def _now(trainer: Trainer) -> float:
    """The time when the device has done its work: a GPU runs behind Python."""
    if trainer.device.type == "cuda":
        torch.cuda.synchronize(trainer.device)
    return time.perf_counter()


def costs(
    protocol: Protocol, rows: list[Row], columns: list[str], results: Results, before: dict[str, Any],
    may_measure: bool, paper: Published | None,
) -> Section:  # fmt: skip
    """Milliseconds of a step, in turns within one process, as ratios to source-only."""
    configs = configs_of_rows(protocol, rows, columns)
    found = measured_before(before, configs)
    if not found and may_measure:
        found = step_costs(configs)
    if not found:
        return "", before, {}
    plain = found[rows[0].title]
    lines = [
        f"Time of a step on {columns[0]}: the rows take turns in one process, medians.",
        "",
        "| | ms | ratio to source-only |",
        "|---|---|---|",
        *(f"| {title} | {ms} | {ms / plain:.2f}× |" for title, ms in found.items()),
    ]
    panels = {"step time, × source-only": {title: ms / plain for title, ms in found.items()}}
    return "\n".join(lines), with_hashes(found, configs), panels
