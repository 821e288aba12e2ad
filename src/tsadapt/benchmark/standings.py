"""Where methods stand over several tasks and seeds: mean, deviation, rank, and the intervals of differences.

A difference is always paired. Over seeds it asks whether another seed on the same tasks would give the same sign; over
tasks, with the seeds averaged, whether another task would.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata
from scipy.stats import t as student

__all__ = ["Difference", "Scores", "Standing", "bootstrap", "certain_best", "difference", "over_seeds", "over_tasks",
           "standings"]  # fmt: skip

Scores = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Of every method, by task and seed."""

FEW = 10
"""Differences below which a bootstrap's interval is too narrow, and Student's t takes its place."""


@dataclass(frozen=True)
class Standing:
    """Where a method stands: its rank among the complete ones, averaged over the tasks, and its means by task.

    `seeds` is how many each task has, at least.
    """

    title: str
    rank: float
    accuracies: tuple[float, ...]
    seeds: int

    @property
    def mean(self) -> float:
        """Over the tasks."""
        return statistics.mean(self.accuracies)


@dataclass(frozen=True)
class Difference:
    """A mean of paired differences with its 95 % interval; infinite where there is but one difference."""

    mean: float
    low: float
    high: float

    @property
    def certain(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


def standings(scores: Scores, tasks: Sequence[str]) -> list[Standing]:
    """All methods that have every task, the best first; accuracies are means over the seeds, ties share their rank.

    >>> standings({"a": {"x": {0: 0.5, 1: 0.7}}, "b": {"x": {0: 0.9}}}, ["x"])[0]
    Standing(title='b', rank=1.0, accuracies=(0.9,), seeds=1)
    """
    whole = {title: by_task for title, by_task in scores.items() if all(by_task.get(task) for task in tasks)}
    if not whole:
        return []
    table = np.array([[statistics.mean(by_task[task].values()) for task in tasks] for by_task in whole.values()])
    ranks = np.column_stack([rankdata(-values) for values in table.T]).mean(axis=1)
    found = [
        Standing(title, float(rank), tuple(map(float, values)), min(len(by_task[task]) for task in tasks))
        for (title, by_task), rank, values in zip(whole.items(), ranks, table, strict=True)
    ]
    return sorted(found, key=lambda one: (one.rank, one.title))


def bootstrap(differences: Sequence[float], draws: int = 10_000, seed: int = 0) -> tuple[float, float, float]:
    """The mean of differences, and its 95 % interval over differences drawn with replacement.

    >>> bootstrap([1.0, 1.0, 1.0])
    (1.0, 1.0, 1.0)
    """
    values = np.asarray(differences)
    drawn = np.random.default_rng(seed).choice(values, (draws, len(values))).mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(values.mean()), float(low), float(high)


def difference(values: Sequence[float]) -> Difference:
    """The mean of paired differences with its interval: by bootstrap, of few by Student's t.

    >>> difference([0.1, 0.2, 0.3]).certain, difference([0.19, 0.2, 0.21]).certain, difference([0.2]).certain
    (False, True, False)
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Difference(mean, -math.inf, math.inf)
    if len(values) >= FEW:
        return Difference(*bootstrap(values))
    half = float(student.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return Difference(mean, mean - half, mean + half)


def over_seeds(
    one: Mapping[str, Mapping[int, float]], other: Mapping[str, Mapping[int, float]], tasks: Sequence[str]
) -> Difference | None:
    """How much more `one` reaches on these tasks, seed by seed; None without a seed that all tasks of both have."""
    shared = set.intersection(*({*scores.get(task, ())} for scores in (one, other) for task in tasks))
    if not shared:
        return None
    return difference([statistics.fmean(one[t][seed] - other[t][seed] for t in tasks) for seed in sorted(shared)])


def over_tasks(
    one: Mapping[str, Mapping[int, float]], other: Mapping[str, Mapping[int, float]], tasks: Sequence[str]
) -> Difference | None:
    """How much more `one` reaches, task by task, over the seeds that both have; None if a task has none."""
    found = []
    for task in tasks:
        shared = sorted({*one.get(task, ())} & {*other.get(task, ())})
        if not shared:
            return None
        found.append(statistics.fmean(one[task][seed] - other[task][seed] for seed in shared))
    return difference(found)


def certain_best(scores: Scores, tasks: Sequence[str]) -> str | None:
    """The method above every other on these tasks, each interval over seeds apart from zero; None if none is."""
    there = [title for title, by_task in scores.items() if all(by_task.get(task) for task in tasks)]
    if len(there) < 2:
        return None

    def mean(title: str) -> float:
        return statistics.fmean(statistics.fmean(scores[title][task].values()) for task in tasks)

    best = max(there, key=mean)
    found = [over_seeds(scores[best], scores[other], tasks) for other in there if other != best]
    return best if all(one is not None and one.low > 0 for one in found) else None
