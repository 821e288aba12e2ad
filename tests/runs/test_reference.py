"""A run whose source accuracy is far below what is easily reached says so."""

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.configs import changed, run_config

from tsadapt.runs.fit import train_run
from tsadapt.runs.reference import Reference, nearest_mean_accuracy

NOTE = "note: the source accuracy is"


def naive_accuracy(x, y, order):
    half = len(x) // 2
    train, rest = order[:half], order[half:]
    scale = x[train].std(0, ddof=1)
    means = {c: x[train][y[train] == c].mean(0) for c in set(y[train].tolist())}
    right = [min(means, key=lambda c: (((x[i] - means[c]) / scale) ** 2).sum()) == y[i] for i in rest]
    return sum(right) / len(right)


def test_nearest_mean_equals_a_naive_one():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 4, 90)
    x = rng.normal(size=(90, 5)) * (1, 1, 1, 9, 0.1) + 1.2 * np.eye(4, 5)[y]
    expected = naive_accuracy(x, y, np.random.default_rng(0).permutation(90))
    assert 0.4 < expected < 0.9
    assert nearest_mean_accuracy(torch.from_numpy(x), torch.from_numpy(y), 4) == expected
    images = torch.from_numpy((20 * x + 100).clip(0, 255)).to(torch.uint8).view(90, 1, 5, 1)
    assert 0.3 < nearest_mean_accuracy(images, torch.from_numpy(y), 6) < 0.9  # two classes have no rows
    assert math.isnan(nearest_mean_accuracy(torch.zeros(3, 2), torch.tensor([0, 1, 0]), 2))


def test_noise_is_no_reference():
    """Rows that the means are made of would be recognised by them: 2,048 numbers a row, 50 rows a class."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(500) % 10
    assert nearest_mean_accuracy(torch.randn(500, 2048, generator=g), y, 10) < 0.2


def test_far_is_beyond_chance():
    assert Reference(0.98, "inputs", 900).far_above(0.57)
    assert not Reference(0.98, "inputs", 900).far_above(0.75)
    assert not Reference(1.0, "inputs", 4).far_above(0.5)  # two of four rows


def test_it_takes_less_than_a_second():
    x, y = torch.zeros(20_000, 2048), torch.arange(20_000) % 100
    nearest_mean_accuracy(x[:100], y[:100], 100)
    start = time.process_time()
    nearest_mean_accuracy(x, y, 100)
    assert time.process_time() - start < 3  # 0.6 s on a quiet machine


def run(config, capsys, out):
    capsys.readouterr()
    _, metrics = train_run(config, Path(out), quiet=True)
    return metrics["last"]["source"], capsys.readouterr().err


def test_a_run_that_failed_says_so_at_its_end_and_in_its_metrics(config, capsys):
    source, said = run(changed(config, lambda0=100.0, steps=60, mi=False), capsys, "failed")
    assert source["accuracy"] < 0.6
    assert source["reference_accuracy"] > 0.9
    assert source["far_below_reference"]
    assert f"{NOTE} {source['accuracy']:.0%}, far below the {source['reference_accuracy']:.0%} that the nearest" in said
    assert "training failed. Try a smaller --lambda0 or --lr, or more --steps." in said
    assert json.loads(Path("failed/metrics.json").read_text())["last"]["source"] == source


@pytest.mark.parametrize("method", ["source-only", "dann", "cdan+e", "jada"])
@pytest.mark.parametrize("tsa", [False, True])
def test_sound_runs_say_nothing(config, capsys, method, tsa):
    source, said = run(changed(config, method=method, tsa=tsa, holdout=0.2, steps=50), capsys, "sound")
    assert not source["far_below_reference"]
    assert source["reference_accuracy"] > 0.7
    assert NOTE not in said


def test_sound_runs_on_digits_say_nothing(capsys, tmp_path):
    config = run_config("digits:uci", "digits:mnist-5k", tsa=True, steps=50, device="cpu")
    source, said = run(config, capsys, tmp_path / "digits")
    assert source["reference_accuracy"] > 0.8
    assert NOTE not in said


def test_images_that_are_not_in_memory_are_judged_by_features(trained, capsys):
    source, _ = run(trained, capsys, "photos")
    assert 0 <= source["reference_accuracy"] <= 1
