"""How long a run is where nobody says: by rows, classes and batch size, never by a target label."""

from dataclasses import replace

import numpy as np
import pytest

from tsadapt import DomainAdaptationClassifier
from tsadapt.config import RunConfig
from tsadapt.data.in_memory import as_dataset
from tsadapt.models.networks import NETWORKS, Length
from tsadapt.objectives.objective import with_settings
from tsadapt.training.setup import make_task, with_length


@pytest.mark.parametrize(
    ("rows", "classes", "adapts", "steps"),
    [
        (1670, 7, False, 105),  # four passes
        (126, 10, False, 100),  # at least this many
        (498, 31, False, 146),  # 300 rows of every class
        (1670, 7, True, 1000),
        (200_000, 7, True, 12_500),
        (20_000, 1000, True, 4688),
    ],
)
def test_steps_by_rows_and_classes(rows, classes, adapts, steps):
    assert Length(100, 1000).steps(rows, classes, 64, adapts) == steps


def test_every_network_sees_all_its_data_and_half_the_batch_takes_twice_the_steps():
    for name in NETWORKS:
        length = NETWORKS[name].length
        for adapts in (False, True):
            assert length.steps(10_000, 10, 64, adapts) * 64 >= 4 * 10_000, name
            longer, shorter = (length.steps(10**6, 10, batch, adapts) for batch in (32, 64))
            assert longer == 2 * shorter


def test_a_run_is_as_long_as_its_larger_domain_needs_and_a_source_only_run_as_its_source():
    rng = np.random.default_rng(0)
    y = np.arange(640) % 4
    source = as_dataset((rng.normal(size=(640, 5)) + 4 * np.eye(4, 5)[y], y), name="s").train
    target = as_dataset(rng.normal(size=(64_000, 5)).astype(np.float32), name="t").train
    plain = RunConfig("s", "t", network="mlp", batch_size=64, target_batch_size=64)
    adapted = with_settings(plain, target_terms=("mi",))
    assert with_length(plain, source, target, 4).steps == 100
    assert with_length(adapted, source, target, 4).steps == 4 * 64_000 / 64
    assert with_length(replace(adapted, steps=7), source, target, 4).steps == 7


def test_the_length_is_written_into_the_config_of_the_run(tmp_path):
    y = np.arange(120) % 3
    np.savez(tmp_path / "s.npz", x=3 * np.eye(3)[y] + np.random.default_rng(0).normal(size=(120, 3)), y=y)
    path = str(tmp_path / "s.npz")
    assert make_task(RunConfig(path, path)).config.steps == 100
    assert make_task(RunConfig(path, path, method="dann")).config.steps == 1000


def test_many_classes_of_few_rows_are_learned_with_the_defaults():
    """A constant of 1,000 steps was three passes for 1,000 classes of 20 rows, and 46 %."""
    rng, classes = np.random.default_rng(0), 200
    y = np.repeat(np.arange(classes), 5)
    means = rng.normal(size=(classes, 32))
    x = means[y] + 0.25 * rng.normal(size=(len(y), 32))
    clf = DomainAdaptationClassifier(bottleneck=64, random_state=0).fit(x, y, X_target=x)
    assert clf.n_iter_ == -(-300 * classes // 64)
    assert clf.score(means[y] + 0.25 * rng.normal(size=x.shape), y) > 0.95
