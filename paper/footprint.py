"""What a training keeps in memory: bytes of TSA's statistics, and the peak of a fresh process.

python -m paper.footprint CONFIG.toml STEPS
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from tsadapt.config import RunConfig, read_config, to_toml
from tsadapt.errors import UserError
from tsadapt.files import write_atomically
from tsadapt.runs.fit import make_training
from tsadapt.training.setup import make_task

__all__ = ["footprint"]


def footprint(config: RunConfig, steps: int = 20) -> dict[str, Any]:
    """`statistics_mb`, `model_mb` (parameters) and `peak_mb` of a fresh process that makes a few steps.

    On a GPU also `gpu_peak_mb`, of the tensors there.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        write_atomically(path, to_toml(config))
        command = [sys.executable, "-m", "paper.footprint", str(path), str(steps)]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode:
        raise UserError(f"the process that measures memory failed: {said.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    return found


def _here(config: RunConfig, steps: int) -> dict[str, float]:
    training = make_training(make_task(config))
    training.fill_memory()
    for _ in range(min(steps, training.steps)):
        training.step()
    found = {
        "statistics_mb": _megabytes(training.source_term.buffers()),
        "model_mb": _megabytes(training.model.parameters()),
        "peak_mb": round(_peak() / 1e6, 1),
    }
    if training.device.type == "cuda":
        found["gpu_peak_mb"] = round(torch.cuda.max_memory_allocated(training.device) / 1e6, 1)
    return found


def _megabytes(tensors: Any) -> float:
    return round(float(sum(t.numel() * t.element_size() for t in tensors)) / 1e6, 2)


def _peak() -> int:
    """Bytes; `ru_maxrss` would count the parent's peak as well on Linux, where it survives the start of a program."""
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    print(json.dumps(_here(read_config(Path(sys.argv[1])), int(sys.argv[2]))))
