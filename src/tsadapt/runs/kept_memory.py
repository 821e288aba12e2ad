"""The memory of a finished run: the latest features and (pseudo-)labels of every row, kept when asked for."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from tsadapt.core import FeatureMemory
from tsadapt.errors import UserError
from tsadapt.files import write_atomically
from tsadapt.runs import checkpoint

__all__ = ["keep_memory_of", "load_memory", "save_memory"]

FILE = "memory.safetensors"
PARTS = ("features", "labels", "count")


def save_memory(run: Path, source_term: nn.Module) -> None:
    """Write RUN/memory.safetensors; a run without memories is refused."""
    found = _rows(source_term.state_dict())
    if not found:
        raise UserError("there is no memory to keep: --keep-memory is for --tsa with --estimator memory.")
    _write(run, found)


def keep_memory_of(run: Path) -> None:
    """Write the memory of a run that is done, if it has none yet, out of its last checkpoint."""
    if (run / FILE).is_file():
        return
    found = _of_checkpoint(run)
    if not found:
        raise UserError(f"{run} is done, and its last checkpoint, which had the memory, is gone: add --overwrite.")
    _write(run, found)


def _write(run: Path, rows: dict[str, Tensor]) -> None:
    write_atomically(run / FILE, save({name: tensor.cpu().contiguous() for name, tensor in rows.items()}))


def load_memory(run: Path, head: int = 0) -> tuple[FeatureMemory, FeatureMemory]:
    """Source and target memory of a head of a finished run: from its file, or else from its last checkpoint."""
    path = run / FILE
    try:
        rows = load_file(path) if path.is_file() else _of_checkpoint(run)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from error
    keys = [f"{domain}.{head}.features" for domain in ("source", "target")]
    if any(key not in rows for key in keys):
        raise UserError(f"{run} has kept no memory of both domains: train it with --tsa --keep-memory.")
    return _memory(rows, f"source.{head}"), _memory(rows, f"target.{head}")


def _memory(rows: dict[str, Tensor], prefix: str) -> FeatureMemory:
    features, labels = rows[f"{prefix}.features"], rows[f"{prefix}.labels"]
    classes = len(rows[f"{prefix}.count"]) - 1
    memory = FeatureMemory(len(features), features.shape[1], classes, dtype=features.dtype, second_moments=False)
    written = (labels < classes).nonzero()[:, 0]
    memory.write(written, features[written], labels[written])
    return memory


def _of_checkpoint(run: Path) -> dict[str, Tensor]:
    found, _ = checkpoint.latest(run / "checkpoints")
    return {} if found is None else _rows(found[1]["source_term"])


def _rows(state: dict[str, Any]) -> dict[str, Tensor]:
    """Of a source term's state, what the memories are made of: source.HEAD.features, …, target.HEAD.count."""
    with_rows = {name.rpartition(".")[0] for name in state if name.endswith(".features")}
    return {f"{memory}.{part}": state[f"{memory}.{part}"] for memory in sorted(with_rows) for part in PARTS}
