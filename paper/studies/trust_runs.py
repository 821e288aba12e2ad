"""The runs behind the study of trust: a portfolio on a task, on its target as it is or with other class shares."""

from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

import numpy as np

from paper.jobs import Job
from paper.protocols import PROTOCOLS
from tsadapt.adapt.portfolio import PORTFOLIO, PREFERRED, REFERENCE, members
from tsadapt.config import RunConfig
from tsadapt.data.open import open_dataset
from tsadapt.data.types import Dataset
from tsadapt.objectives.objective import with_settings
from tsadapt.runs.fit import train_run
from tsadapt.runs.folder import SweepFolder
from tsadapt.selection.select import Choice, choose
from tsadapt.sweep.choice import Candidate, read_candidates
from tsadapt.training.setup import one_spelling

__all__ = ["AS_IT_IS", "DOMINATED", "LACKING", "PRIORS", "PRIOR_OF", "TRAININGS", "Pool", "pool_configs", "train_pool"]

AS_IT_IS, LACKING, DOMINATED = "as it is", "a class missing", "one class dominates"
"""What is done to the target's rows, by its labels (oracle)."""

DOMINANT_SHARE = 0.82
LEAST_SHARE = 1e-3
"""Of a missing class, in the shares that are told to the terms: none may be zero."""

FEW = (REFERENCE, "adabn", "strong")
"""The candidates where the target's shares were changed: these runs are about shares."""

PRIOR_OF = ("strong",)
"""Candidates that are trained with every class prior, where the target's shares were changed."""

PRIORS = ("uniform", "estimated", "oracle")

TRAININGS = len(PORTFOLIO) + 1
"""Of a task whose target is as it is."""


@dataclass(frozen=True)
class Pool:
    """A trained portfolio: its candidates, the choice among them, and the chosen one's second seed.

    `priored` are those of PRIOR_OF by (candidate, prior); `labels` (n_t,) and `rows` of the target only measure.
    """

    names: list[str]
    candidates: list[Candidate]
    choice: Choice
    twin: Candidate | None
    priored: dict[tuple[str, str], Candidate]
    classes: tuple[str, ...]
    source_labels: np.ndarray
    labels: np.ndarray


def train_pool(job: Job, folder: Path) -> Pool:
    """Train what is missing of a job's runs, and choose as `tsadapt adapt` does."""
    source, target = (open_dataset(name) for name in (job.config.source, job.config.target))
    target = _with_rows(target, job)
    configs = pool_configs(job)
    data = source, target
    candidates = [_trained(config, folder, data) for config in configs.values()]
    names = [*configs]
    choice = choose(
        [one.predictions for one in candidates], reference=names.index(REFERENCE), preferred=names.index(PREFERRED)
    )
    chosen = candidates[choice.chosen].config
    twin = _trained(replace(chosen, seed=chosen.seed + 1), folder, data) if job.row == AS_IT_IS else None
    y, y_s = target.train.y, source.train.y
    assert y is not None
    assert y_s is not None
    labels = y.numpy()
    priored = {}
    if job.row != AS_IT_IS:
        for name in PRIOR_OF:
            for prior in PRIORS:
                config = _with_prior(configs[name], prior, labels, source.train.classes or ())
                priored[name, prior] = _trained(config, folder, data)
    return Pool(
        [*configs], candidates, choice, twin, priored, source.train.classes or (), y_s.numpy(), labels
    )  # fmt: skip


def pool_configs(job: Job) -> dict[str, RunConfig]:
    """The config of every candidate, source-only first."""
    found = {}
    for name, settings in members(PORTFOLIO if job.row == AS_IT_IS else FEW).items():
        config = PROTOCOLS["trust"].config(job.column, job.seed, **settings)
        if job.config.steps is not None:  # a quick look has the same length for all
            config = replace(config, steps=job.config.steps)
        if job.row != AS_IT_IS:
            config = replace(config, target=_renamed(job))
        found[name] = one_spelling(config)
    return found


def _renamed(job: Job) -> str:
    return f"{job.config.target}, {job.row} (oracle)"


def _with_prior(config: RunConfig, prior: str, labels: np.ndarray, classes: tuple[str, ...]) -> RunConfig:
    if prior == "uniform":
        return config
    if prior == "estimated":
        return one_spelling(with_settings(config, class_prior=prior))
    share = np.maximum(np.bincount(labels, minlength=len(classes)) / len(labels), LEAST_SHARE)
    table = {name: round(float(s), 4) for name, s in zip(classes, share / share.sum(), strict=True)}
    return one_spelling(with_settings(config, class_prior=table))


def _trained(config: RunConfig, folder: Path, data: tuple[Dataset, Dataset]) -> Candidate:
    out = SweepFolder(folder).run(config).path
    train_run(config, out, quiet=True, data=data)
    return read_candidates([out])[-1]


def _with_rows(target: Dataset, job: Job) -> Dataset:
    """The target as the job has it: every row, or those that an oracle leaves."""
    if job.row == AS_IT_IS:
        return target
    domain = target.train
    assert domain.y is not None
    rows = changed_rows(domain.y.numpy(), job.row, crc32(job.column.encode()) + job.seed)
    kept = domain.keep(rows.tolist())
    return Dataset(kept, kept, _renamed(job))


def changed_rows(labels: np.ndarray, row: str, seed: int) -> np.ndarray:
    """Rows without a class, or with so many of one class that it has 82 % of them; the class is drawn.

    >>> y = np.arange(300) % 3
    >>> len(changed_rows(y, LACKING, 0)), len(changed_rows(y, DOMINATED, 0))
    (200, 122)
    """
    rng = np.random.default_rng(seed)
    one = rng.integers(labels.max() + 1)
    mine, others = np.flatnonzero(labels == one), np.flatnonzero(labels != one)
    if row == LACKING:
        return others
    count = round(len(mine) * (1 - DOMINANT_SHARE) / DOMINANT_SHARE)
    return np.sort(np.concatenate([mine, rng.permutation(others)[:count]]))
