"""The state of an objective whose memories are dealt to several processes: what each of them saves, and how it returns.

With as many processes as before every one takes its own part again, to the bit. With another number the rows are put
together and dealt again, and what follows from them is made anew.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tsadapt.core import FeatureMemory, PredictionMemory
from tsadapt.core.merged import ShardedMemory
from tsadapt.core.processes import block_sizes

__all__ = ["load_objective", "sharded_keys", "whole_rows"]

Rows = tuple[Tensor, Tensor]
"""The rows (n, …) of a memory, and their labels (n,), or which of them are written."""


def sharded_keys(objective: nn.Module) -> list[str]:
    """The keys of an objective's state whose values only this process has."""
    found = []
    for name, module in objective.named_modules():
        if isinstance(module, ShardedMemory):
            found += [f"{name}.own.{key}" for key in module.own.state_dict()]
        elif isinstance(module, PredictionMemory) and module.processes is not None:
            found += [f"{name}.predictions", f"{name}.total"]
    return found


def load_objective(
    objective: nn.Module, state: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], own: int | None
) -> None:
    """Take up a state that was saved in `parts`, one for each process of then (none: by one process).

    `own` is the number of this process if there are as many now; None deals the rows again.
    """
    if own is not None or (not parts and not sharded_keys(objective)):
        objective.load_state_dict({**state, **(parts[own] if own is not None else {})})
        return
    memories = {f"{name}.": module for name, module in _memories(objective)}
    rest = {key: value for key, value in state.items() if not key.startswith(tuple(memories))}
    missing, unexpected = objective.load_state_dict(rest, strict=False)
    if unexpected or any(not key.startswith(tuple(memories)) for key in missing):
        raise ValueError("the state of another objective")
    for prefix, module in memories.items():
        module.deal(*_rows(prefix, state, parts))


def whole_rows(state: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The state as one process would have it, as far as it says which rows of the shared memories are what."""
    found = dict(state)
    for key in [key for part in parts[:1] for key in part if key.endswith(".own.features")]:
        prefix = key.removesuffix("own.features")
        found[f"{prefix}features"], labels = _rows(prefix, state, parts)
        found[f"{prefix}count"] = torch.bincount(labels, minlength=len(parts[0][f"{prefix}own.count"]))
    return found


def _memories(objective: nn.Module) -> Iterator[tuple[str, FeatureMemory | ShardedMemory | PredictionMemory]]:
    inside = set[str]()
    for name, module in objective.named_modules():
        if isinstance(module, FeatureMemory | ShardedMemory | PredictionMemory) and name not in inside:
            inside.add(f"{name}.own")
            yield name, module


def _rows(prefix: str, state: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> Rows:
    """The rows of a memory, of all processes that saved them."""
    which = next(prefix + key for key in ("labels", "written") if prefix + key in state)
    names = [prefix + key for key in ("own.features", "features", "predictions")]
    if not parts:
        return next(state[name] for name in names if name in state), state[which]
    name = next((name for name in names if name in parts[0]), None)
    if name is None:  # a memory that every process has whole
        return next(state[name] for name in names if name in state), state[which]
    sizes = block_sizes(len(state[which]), len(parts))
    return torch.cat([part[name][:size] for part, size in zip(parts, sizes, strict=True)]), state[which]
