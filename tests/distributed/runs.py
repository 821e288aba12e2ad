"""What a process makes of a run in float64, for comparisons of one process with several."""

import os
from typing import Any

import torch
from torch import Tensor

from tsadapt.config import RunConfig
from tsadapt.core.processes import Processes
from tsadapt.training.setup import make_task, make_trainer

__all__ = ["steps_of"]


def steps_of(config: RunConfig, steps: int, describe: bool = False, cache: str | None = None) -> dict[str, Any]:
    """The terms of each step, the gradients of the last one, and all that training has changed, of this process."""
    if cache is not None:
        os.environ["TSADAPT_CACHE"] = cache
    torch.set_num_threads(1)
    task = make_task(config, data=None)
    trainer = make_trainer(task, Processes.here())
    trainer.model.double()
    trainer.objective.double()
    trainer.fill_memory()
    terms = [trainer.step(describe=describe and at == steps) for at in range(1, steps + 1)]
    parameters = {
        f"{part}.{name}": p
        for part, module in (("model", trainer.model), ("objective", trainer.objective))
        for name, p in module.named_parameters()
    }
    grads = {name: p.grad.clone() for name, p in parameters.items() if p.grad is not None}
    buffers = {name: value.clone() for name, value in trainer.model.named_buffers()}
    weights: dict[str, Tensor] = {name: p.detach().clone() for name, p in parameters.items()}
    return {"terms": terms, "grads": grads, "weights": weights, "buffers": buffers}
