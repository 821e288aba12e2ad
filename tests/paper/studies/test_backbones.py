import json
from pathlib import Path

import pytest
from paper.studies.backbones import BACKBONES, RESULTS, TASKS, correlations, describe

ROOT = Path(__file__).parents[3]


def measured(scores):
    """The same on every task: by backbone, LogME of source and target, A-distance, accuracy."""
    return {
        f"{name} | {task}": {"logme": a, "target_logme": b, "a_distance": c, "accuracy": {"0": d}}
        for name, (a, b, c, d) in scores.items()
        for task in TASKS
    }


def test_a_score_in_the_order_of_the_accuracies_correlates_fully_and_loses_nothing():
    names = ["a", "b", "c"]
    found = correlations(measured({"a": (1, 3, 1.9, 0.5), "b": (2, 2, 2.0, 0.6), "c": (3, 1, 1.8, 0.9)}), names)
    assert all(one["spearman"] == pytest.approx(1) and one["regret"] == 0 for one in found["logme"].values())
    assert all(one["spearman"] == pytest.approx(-1) for one in found["target_logme"].values())
    assert found["target_logme"][TASKS[0]]["regret"] == pytest.approx(0.4)
    assert found["a_distance"][TASKS[0]]["regret"] == 0  # the least distance is put first
    assert found["a_distance"][TASKS[0]]["spearman"] == pytest.approx(0.5)


def test_the_page_is_what_was_measured():
    stored = json.loads((ROOT / RESULTS / "backbones.json").read_text(encoding="utf-8"))
    names = [name for name in BACKBONES if f"{name} | {TASKS[0]}" in stored["measured"]]
    seeds = sorted({int(seed) for one in stored["measured"].values() for seed in one["accuracy"]})
    assert stored["correlations"] == correlations(stored["measured"], names)
    assert (ROOT / RESULTS / "backbones.md").read_text(encoding="utf-8") == describe(stored["measured"], names, seeds)
