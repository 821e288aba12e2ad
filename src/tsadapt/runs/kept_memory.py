"""The memory of a finished run: the latest features and (pseudo-)labels of every row, kept when asked for."""

from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from tsadapt.core import FeatureMemory
from tsadapt.core.merged import ShardedMemory
from tsadapt.errors import UserError
from tsadapt.files import write_atomically
from tsadapt.runs import checkpoint
from tsadapt.runs.folder import RunFolder
from tsadapt.training.launch import speaks
from tsadapt.training.shards import whole_rows

__all__ = ["keep_memory_of", "load_memory", "save_memory", "source_means"]

PARTS = ("features", "labels", "count")
NONE = "there is no memory to keep: --keep-memory needs --tsa with --estimator memory."


def save_memory(run: RunFolder, objective: nn.Module) -> None:
    """Write the memory of a run that is being trained; a run without one is refused."""
    state = objective.state_dict()
    for name, module in objective.named_modules():
        if isinstance(module, ShardedMemory):  # put together in every process
            state[f"{name}.features"] = module.whole_features()
            state[f"{name}.count"] = torch.bincount(module.labels, minlength=module.classes + 1)
    found = _rows(state)
    if not found:
        raise UserError(NONE)
    if speaks():
        _write(run, found)


def keep_memory_of(run: RunFolder) -> None:
    """Write the memory of a run that is done, if it has none yet, out of its last checkpoint."""
    if run.memory_file.is_file():
        return
    found = _of_checkpoint(run)
    if not found:
        raise UserError(f"{run.path} is done, and its last checkpoint, which had the memory, is gone: add --overwrite.")
    _write(run, found)


def load_memory(run: RunFolder, head: int = 0) -> tuple[FeatureMemory, FeatureMemory]:
    """Source and target memory of a head of a finished run: from its file, or else from its last checkpoint."""
    rows = _kept(run)
    keys = [f"{domain}.{head}" for domain in ("source", "target")]
    if any(f"{key}.features" not in rows for key in keys):
        raise UserError(f"{run.path} has kept no memory of both domains: train it with --tsa --keep-memory.")
    return _memory(rows, keys[0]), _memory(rows, keys[1])


def source_means(run: RunFolder, head: int = 0) -> tuple[Tensor, Tensor] | None:
    """How many rows each class of the source has (C,), and its mean (C, K), in a head's memory; None without one."""
    rows = _kept(run)
    return _memory(rows, f"source.{head}").class_means() if f"source.{head}.features" in rows else None


def _kept(run: RunFolder) -> dict[str, Tensor]:
    """What is there of the memories of a finished run."""
    try:
        return load_file(run.memory_file) if run.memory_file.is_file() else _of_checkpoint(run)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{run.memory_file} cannot be read: {error}.") from error


def _write(run: RunFolder, rows: dict[str, Tensor]) -> None:
    write_atomically(run.memory_file, save({name: tensor.cpu().contiguous() for name, tensor in rows.items()}))


def _memory(rows: dict[str, Tensor], prefix: str) -> FeatureMemory:
    features, labels = rows[f"{prefix}.features"], rows[f"{prefix}.labels"]
    classes = len(rows[f"{prefix}.count"]) - 1
    memory = FeatureMemory(len(features), features.shape[1], classes, dtype=features.dtype, second_moments=False)
    written = (labels < classes).nonzero()[:, 0]
    memory.write(written, features[written], labels[written])
    return memory


def _of_checkpoint(run: RunFolder) -> dict[str, Tensor]:
    found, _ = checkpoint.latest(run.checkpoints)
    state = {} if found is None else found[1].get("objective")
    if found is None or not isinstance(state, dict):
        return {}
    return _rows(whole_rows(state, checkpoint.parts_of(run.checkpoints, found[1])))


def _rows(state: dict[str, Any]) -> dict[str, Tensor]:
    """Of an objective's state, what its memories are made of: source.HEAD.features, …, target.HEAD.count."""
    found = {}
    for name, value in state.items():
        kept, _, rest = name.removeprefix("statistics.kept.").partition("-memory.")
        if (
            rest.rpartition(".")[2] in PARTS
            and ".own." not in rest
            and kept in ("source", "target")
            and isinstance(value, Tensor)
        ):
            found[f"{kept}.{rest}"] = value
    return found
