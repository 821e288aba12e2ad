import math
import statistics

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from tsadapt.benchmark.standings import bootstrap, certain_best, difference, over_seeds, over_tasks, standings


def flat(**by_method):
    """Scores of one task x, by method and seed."""
    return {name: {"x": dict(enumerate(values))} for name, values in by_method.items()}


def test_ranks_are_averaged_and_ties_shared():
    scores = {name: {"x": {0: value}, "y": {0: value + 1}} for name, value in {"a": 50.0, "b": 60.0, "c": 50.0}.items()}
    found = standings(scores, ["x", "y"])
    assert [(one.title, one.rank, one.mean) for one in found] == [("b", 1.0, 60.5), ("a", 2.5, 50.5), ("c", 2.5, 50.5)]


def test_a_method_without_all_tasks_has_no_rank_and_takes_none():
    scores = {"a": {"x": {0: 0.5}, "y": {0: 0.5}}, "b": {"x": {0: 0.9}, "y": {}}}
    assert [(one.title, one.rank) for one in standings(scores, ["x", "y"])] == [("a", 1.0)]
    assert standings({"b": scores["b"]}, ["x", "y"]) == []


def test_a_bootstrap_lies_around_the_mean():
    mean, low, high = bootstrap([0.0, 0.0, 3.0, 3.0])
    assert mean == 1.5
    assert 0 <= low < 1.5 < high <= 3


@pytest.mark.parametrize("n", [2, 3, 9])
def test_few_differences_have_students_interval(n):
    values = np.random.default_rng(n).normal(0.3, 0.2, n)
    expected = ttest_1samp(values, 0).confidence_interval(0.95)
    found = difference(values)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("n", [3, 5, 12])
def test_intervals_cover_what_they_say(n):
    """Of 400 samples with mean zero, an interval of 95 % leaves zero out about 20 times; a bootstrap of 3 would 80."""
    rng = np.random.default_rng(0)
    wrong = sum(difference(rng.normal(size=n)).certain for _ in range(400))
    assert wrong / 400 < 0.1


def test_one_difference_is_never_certain():
    found = difference([5.0])
    assert (found.mean, found.low, found.high, found.certain) == (5.0, -math.inf, math.inf, False)


def test_differences_are_paired():
    """Far apart over the seeds, but always one point apart: certain only because seeds are paired."""
    scores = flat(a=[0.1, 0.5, 0.9], b=[0.11, 0.51, 0.912])
    found = over_seeds(scores["b"], scores["a"], ["x"])
    assert found.certain
    assert found.mean == pytest.approx(0.032 / 3)


def test_only_seeds_that_both_have_are_compared():
    found = over_seeds({"x": {0: 0.5, 1: 0.6, 7: 0.0}}, {"x": {0: 0.4, 1: 0.4}}, ["x"])
    assert found.mean == pytest.approx(0.15)
    assert over_seeds({"x": {0: 0.5}}, {"x": {1: 0.5}}, ["x"]) is None
    assert over_tasks({"x": {0: 0.5}}, {"x": {1: 0.5}}, ["x"]) is None


def test_over_tasks_averages_the_seeds_first():
    one = {"x": {0: 0.5, 1: 0.7}, "y": {0: 0.9}}
    other = {"x": {0: 0.4, 1: 0.6}, "y": {0: 0.6}}
    found = over_tasks(one, other, ["x", "y"])
    assert found.mean == pytest.approx(statistics.mean([0.1, 0.3]))
    assert not found.certain


def test_the_best_is_certain_only_above_every_other():
    scores = flat(low=[0.1, 0.1, 0.11], near=[0.80, 0.90, 0.85], best=[0.85, 0.88, 0.90])
    assert certain_best(scores, ["x"]) is None
    assert certain_best({name: scores[name] for name in ("low", "best")}, ["x"]) == "best"
    assert certain_best({"best": scores["best"]}, ["x"]) is None  # best of what?
    assert certain_best(flat(a=[0.1], b=[0.9]), ["x"]) is None  # one seed says nothing of another
