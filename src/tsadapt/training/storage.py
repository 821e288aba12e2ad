"""Where the rows of memories are kept, how much memory a run needs, and whether there is as much."""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from tsadapt.cache import cache_root
from tsadapt.config import MemoryStorage, RunConfig
from tsadapt.errors import UserError
from tsadapt.objectives.base import Context
from tsadapt.objectives.objective import Objective

__all__ = ["check_memory", "memory_needed", "row_storage", "sized"]

MakeRows = Callable[[int, int], Tensor]
"""From n and K to a tensor (n, K) of zeros."""

SMALLER: tuple[MemoryStorage, ...] = ("float16", "float16-cpu", "float16-disk")
"""What --memory-storage offers to a run that does not fit, the fastest first."""

GROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"))
"""The limit of a container, and what is in use."""


def row_storage(storage: str) -> tuple[torch.dtype, MakeRows | None]:
    """The dtype of the rows of a memory, and what makes them where they are not to lie beside the network.

    >>> row_storage("float16-cpu")[0], row_storage("float32")
    (torch.float16, (torch.float32, None))
    """
    name, _, place = storage.partition("-")
    dtype: torch.dtype = getattr(torch, name)
    if place == "cpu":
        return dtype, lambda rows, dim: torch.zeros(rows, dim, dtype=dtype)
    if place == "disk":
        return dtype, lambda rows, dim: _mapped(rows, dim, dtype, cache_root() / "memory")
    return dtype, None


def _mapped(rows: int, dim: int, dtype: torch.dtype, folder: Path) -> Tensor:
    """Rows in a file of their own, which goes with the process; the system keeps in memory what it has room for."""
    if torch.get_default_device().type == "meta":  # only to be counted
        return torch.zeros(rows, dim, dtype=dtype)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="rows-", dir=folder)
        os.close(handle)
        found = torch.from_file(name, shared=True, size=rows * dim, dtype=dtype).view(rows, dim)
    except (OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"A memory cannot be kept in {folder}: {reason}. Set TSADAPT_CACHE to another folder."
        ) from error
    with suppress(OSError):  # what is mapped stays until it is let go; some systems refuse this
        os.unlink(name)
    return found


def memory_needed(config: RunConfig, context: Context, network: nn.Module) -> int:
    """Bytes that a run takes beside its data: weights, gradients and momenta, what terms keep, what a step copies.

    Everything is made as it would be, without memory.
    """
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        objective = Objective(config, _counted(context, config.memory_storage))
    weights = [p for module in (network, objective) for p in module.parameters()]
    kept = [b for module in (network, objective) for b in module.buffers()]
    if config.memory_storage.endswith("-disk"):
        kept = [
            b for b in kept if b.ndim != 2 or b.shape[0] not in _rows(context) or b.shape[1] not in context.head_dims
        ]
    total = 3 * sum(map(_bytes, weights)) + sum(map(_bytes, kept))
    # The rows of the classes in a batch go through the head in each step, as they are and as the head takes them.
    share = min(1.0, context.batch_sizes[0] / len(context.classes))
    step = 2 * 4 * share * max(_rows(context)) * max(context.head_dims) if objective.statistics.memories else 0
    return total + int(step)


def _rows(context: Context) -> tuple[int, ...]:
    """Rows of both domains that this process keeps."""
    of = context.processes
    return tuple(rows if of is None else max(of.sizes(rows)) for rows in context.sizes)


def _counted(context: Context, storage: str) -> Context:
    dtype, make = row_storage(storage)
    return replace(context, memory_dtype=dtype, memory_rows=make)


def _bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()


def check_memory(config: RunConfig, context: Context, network: nn.Module, device: torch.device) -> str:
    """What a run will need, in words; refused if it cannot have it, with the option that would do."""
    try:
        needed = memory_needed(config, context, network)
    except (RuntimeError, NotImplementedError):  # a term that cannot be made without memory
        return ""
    free = available(device)
    if free is None or needed <= free:
        return f"needs about {sized(needed)} of memory beside the data" + (f", {sized(free)} free" if free else "")
    said = f"This run needs about {sized(needed)} of memory beside the data, and {sized(free)} are free."
    for storage in SMALLER:
        less = memory_needed(replace(config, memory_storage=storage), context, network)
        if less <= free:
            raise UserError(f"{said} With --memory-storage {storage} it needs {sized(less)}.")
    raise UserError(f"{said} Take fewer rows (--target-share 0.1), a smaller --bottleneck, or more processes.")


def available(device: torch.device) -> int | None:
    """Bytes that are free where a run computes; None where nobody says."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = list[int]()
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with suppress(OSError, ValueError):  # "max" is no number
        limit, used = (int(path.read_text(encoding="ascii")) for path in GROUPS)
        found.append(limit - used)
    return min(found, default=None)


def sized(number: int) -> str:
    """Bytes in words.

    >>> sized(1_300_000_000), sized(2_000_000), sized(900)
    ('1.3 GB', '2 MB', '1 MB')
    """
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{max(round(number / 1e6), 1)} MB"
