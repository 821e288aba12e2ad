"""How much memory a training takes: bytes of TSA's statistics, and the peak of a fresh process.

python -m paper.analyses.footprint CONFIG.toml STEPS
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from paper.analyses.section import Section, common_runs, configs_of_rows, measured_before, with_hashes
from paper.protocols import Protocol
from paper.published import Published
from paper.results_file import Results
from paper.rows import Row
from tsadapt.config import RunConfig, read_config, to_toml
from tsadapt.errors import UserError, counted
from tsadapt.files import write_atomically
from tsadapt.training.setup import make_task, make_trainer

__all__ = ["footprint", "footprints"]

ROOT = Path(__file__).parents[2]
"""The package `paper` is not installed: a process started elsewhere must be told where it lies."""


def footprint(config: RunConfig, steps: int = 20) -> dict[str, Any]:
    """`statistics_mb`, `model_mb` (parameters) and `peak_mb` of a fresh process that makes a few steps.

    On a GPU also `gpu_peak_mb`, of the tensors there.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "footprint.toml"
        write_atomically(path, to_toml(config))
        command = [sys.executable, "-m", "paper.analyses.footprint", str(path), str(steps)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if ended.returncode:
        raise UserError(f"the process that measures memory failed: {ended.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _here(config: RunConfig, steps: int) -> dict[str, float]:
    trainer = make_trainer(make_task(config))
    trainer.fill_memory()
    for _ in range(min(steps, trainer.steps)):
        trainer.step()
    found = {
        "statistics_mb": _megabytes(trainer.statistics.buffers()),
        "model_mb": _megabytes(trainer.model.parameters()),
        "peak_mb": round(_peak() / 1e6, 1),
    }
    if trainer.device.type == "cuda":
        found["gpu_peak_mb"] = round(torch.cuda.max_memory_allocated(trainer.device) / 1e6, 1)
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


def footprints(
    protocol: Protocol, rows: list[Row], columns: list[str], results: Results, before: dict[str, Any],
    may_measure: bool, paper: Published | None,
) -> Section:  # fmt: skip
    """Bytes of TSA's statistics and peak memory of a fresh process, on the first task; and what they gain on all."""
    configs = configs_of_rows(protocol, rows, columns)
    found = measured_before(before, configs)
    if not found and may_measure:
        found = {title: footprint(config) for title, config in configs.items()}
    if not found:
        return "", before, {}
    common, by_row = common_runs(rows, results)
    accuracy = {title: [runs[task]["accuracy"] for task in common] for title, runs in by_row.items()}
    on_gpu = any("gpu_peak_mb" in sizes for sizes in found.values())
    lines = [
        f"Memory on {columns[0]}, MB: TSA's statistics, the network's parameters, and the peak of a fresh process"
        f" (measured once, data and libraries included){', and of its tensors on the GPU' if on_gpu else ''}."
        " The memory stores the features of both domains; iterative statistics store a K × K matrix in double precision"
        " for each class of both. Which is smaller depends on the data, and prediction needs neither. Gain: points of"
        f" accuracy over {rows[0].title}, mean over {counted(len(common), 'run')} of each row.",
        "",
        f"| | statistics | parameters | peak of the process |{' peak on the GPU |' * on_gpu} gain |",
        f"|---|---|---|---|{'---|' * on_gpu}---|",
    ]
    published = {row.title: row.published for row in rows}
    for title, sizes in found.items():
        gain = _gain(accuracy, title, rows[0].title)
        gained = "–" if gain is None else f"{gain[0]:+.1f}"
        gpu = f" {sizes['gpu_peak_mb']} |" if on_gpu else ""
        lines.append(
            f"| {title} | {sizes['statistics_mb']} | {sizes['model_mb']} | {sizes['peak_mb']} |{gpu} {gained} |"
        )
        if paper is not None and published.get(title) in paper.rows:
            lines.append(_paper_line(paper, published[title], on_gpu))
    gain = _gain(accuracy, rows[-1].title, rows[-2].title)
    if gain is not None:
        spread = "" if math.isnan(gain[1]) else f", deviation {gain[1]:.2f}"
        lines += ["", f"Memory minus iterative statistics, run by run: {gain[0]:+.2f} points{spread}."]
    panels = {
        f"{what}, MB": {title: sizes[name] for title, sizes in found.items()}
        for what, name in (("statistics", "statistics_mb"), ("peak of the process", "peak_mb"))
    }
    return "\n".join(lines), with_hashes(found, configs), panels


def _paper_line(paper: Published, row: str | None, on_gpu: bool) -> str:
    """The paper's memory, which is a GPU's, and its gain."""
    memory, gain = (paper.value(row, column) for column in ("GPU Memory (GB)", "Gain (%)"))
    peak = "–" if memory is None else f"{1000 * memory:.0f}"
    cells = [*("–", "–"), *(("–", peak) if on_gpu else (f"{peak} on a GPU",)), "–" if gain is None else f"{gain:+.1f}"]
    return f"| · the paper | {' | '.join(cells)} |"


def _gain(accuracy: dict[str, list[float]], title: str, over: str) -> tuple[float, float] | None:
    """Mean and deviation of the differences between the runs of two rows; None if one has none."""
    if title not in accuracy or over not in accuracy:
        return None
    differences = [a - b for a, b in zip(accuracy[title], accuracy[over], strict=True)]
    return statistics.mean(differences), statistics.stdev(differences) if len(differences) > 1 else math.nan


if __name__ == "__main__":
    print(json.dumps(_here(read_config(Path(sys.argv[1])), int(sys.argv[2]))))
