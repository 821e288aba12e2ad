"""A step that trains a ResNet-50 from layer4 on, beside one that trains all of it: the same batch, the same precision.

    python -m benchmarks.train_from

Images are drawn at random and read from files; 32 + 32 of them make a batch, with TSA. Takes about ten minutes.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.measure import interleave, versions
from tsadapt.config import Precision, RunConfig
from tsadapt.training.runtime import keep_freed_memory
from tsadapt.training.setup import make_task, make_trainer

BACKBONE, STAGE = "torchvision:resnet50", "layer4"
CLASSES, IMAGES, SIDE = 8, 96, 256
WAYS: dict[str, dict[str, Any]] = {"whole": {"freeze_backbone": False}, STAGE: {"train_from": STAGE, "views": 2}}


def draw(folder: Path, seed: int) -> str:
    """A folder of class folders."""
    rng = np.random.default_rng(seed)
    for i in range(IMAGES):
        path = folder / f"class {i % CLASSES}" / f"{i:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(path)
    return str(folder)


def measured(work: Path, rounds: int, precision: Precision) -> dict[str, Any]:
    """Median seconds of a step either way, in turns, and their ratio."""
    source, target = draw(work / "source", 0), draw(work / "target", 1)
    trainers = {}
    for name, settings in WAYS.items():
        config = RunConfig(
            source, target, source_term="tsa", target_terms=("mi",), backbone=BACKBONE, weights="none", steps=10_000,
            batch_size=32, precision=precision, **settings,
        )  # fmt: skip
        trainers[name] = make_trainer(make_task(config, print, False))
        trainers[name].fill_memory()
    seconds = interleave({name: trainer.step for name, trainer in trainers.items()}, rounds, 3600)
    return {
        "seconds_a_step": {name: round(value, 3) for name, value in seconds.items()},
        "ratio": round(seconds[STAGE] / seconds["whole"], 4),
        "precision": precision,
        "rounds": rounds,
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="steps of each, in turns")
    parser.add_argument("--precisions", nargs="+", default=["bf16", "fp32"], choices=["bf16", "fp32"])
    parser.add_argument("--out", type=Path, default=Path("paper/results/benchmarks/train-from.json"))
    arguments = parser.parse_args()
    keep_freed_memory()
    result: dict[str, Any] = {"backbone": BACKBONE, "stage": STAGE, "batch": "32 + 32", "terms": "tsa + mi"}
    for precision in arguments.precisions:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TSADAPT_CACHE"] = str(Path(folder) / "cache")
            result[precision] = measured(Path(folder), arguments.rounds, precision)
        print(json.dumps(result[precision]), flush=True)
    result |= {"command": "python -m benchmarks.train_from", "versions": versions()}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
