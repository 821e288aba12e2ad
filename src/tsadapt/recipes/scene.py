"""A finished run with its memory, ready to be looked at: features of all rows as the network gives them now."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tsadapt.analysis.augment import Augmenter
from tsadapt.config import RunConfig, read_config
from tsadapt.core import FeatureMemory
from tsadapt.data.loader import seeded
from tsadapt.data.types import Domain
from tsadapt.engine.evaluate import predict_rows
from tsadapt.engine.kept_memory import load_memory
from tsadapt.engine.saved import SavedModel, load_model
from tsadapt.engine.task import Task, make_task
from tsadapt.errors import UserError

__all__ = ["Scene", "rows_of_each_class", "scene_of_run"]


@dataclass(frozen=True)
class Scene:
    """A run, its task and model, the features of both domains (N, K) in evaluation mode, and draws from their moments.

    `source` and `target` are the rows that were trained on, without images that cannot be read. The moments are of
    their features under the labels of the memory. The memory's own features would not do: they are from training mode,
    with dropout and the statistics of a batch, and lie where no image of its own can be.
    """

    config: RunConfig
    task: Task
    saved: SavedModel
    source: Domain
    target: Domain
    f_s: Tensor
    f_t: Tensor
    augmenter: Augmenter


def scene_of_run(run: Path) -> Scene:
    """What is needed to look at the augmented features of a run that has kept its memory."""
    if not (run / "config.toml").is_file():
        raise UserError(f"No run at {run}: expected the folder that fit wrote (its --out).")
    config = read_config(run / "config.toml")
    memories = load_memory(run)
    task, saved = make_task(config), load_model(run, torch.device("cpu"))
    if saved.architecture.heads > 1:
        raise UserError(
            f"{config.method} has {saved.architecture.heads} heads, each with features of its own: this is for one."
        )
    for domain, memory in zip((task.source.train, task.target.train), memories, strict=True):
        if len(domain) != memory.size:
            raise UserError(
                f"{domain.name} has {len(domain)} rows, and the run was trained on {memory.size}: it changed since."
            )
    _check_data(run, task)
    (source, f_s, of_source), (target, f_t, of_target) = (
        _evaluated(saved, d, m) for d, m in zip((task.source.train, task.target.train), memories, strict=True)
    )
    augmenter = Augmenter(of_source, of_target, config.mean_shift, config.covariance != "none", config.min_count)
    return Scene(config, task, saved, source, target, f_s, f_t, augmenter)


def _check_data(run: Path, task: Task) -> None:
    """The rows are those that the run was trained on."""
    path = run / "manifest.json"
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))["data"]
        for role, domain in (("source", task.source.train), ("target", task.target.train)):
            if before[role]["train"] != domain.fingerprint():
                raise UserError(f"{domain.name} changed since the run was trained: the memory is of other rows.")
        if before["source"]["labels"] != task.source.train.label_fingerprint():
            raise UserError(f"{task.source.train.name} has other labels than when the run was trained.")


def _evaluated(saved: SavedModel, domain: Domain, memory: FeatureMemory) -> tuple[Domain, Tensor, FeatureMemory]:
    """The rows that can be read, their features, and a memory of these under the labels that it had."""
    predicted = predict_rows(saved.model, domain, torch.device("cpu"), saved.eyes)
    if len(predicted.rows) < len(domain):
        domain = domain.keep(predicted.rows)
    features, labels = torch.from_numpy(predicted.features), memory.labels[torch.tensor(predicted.rows)]
    now = FeatureMemory(len(features), memory.dim, memory.classes, second_moments=False)
    known = (labels < memory.classes).nonzero()[:, 0]
    now.write(known, features[known], labels[known])
    return domain, features, now


def rows_of_each_class(y: Tensor, classes: int, of_class: int, seed: int) -> tuple[list[int], Tensor]:
    """So many rows of each class, at random, and their labels."""
    random, rows = seeded(seed, 31), list[int]()
    for c in range(classes):
        mine = (y == c).nonzero()[:, 0]
        rows += mine[torch.randperm(len(mine), generator=random)[:of_class]].tolist()
    return rows, y[rows]
