"""A run with many classes stays small: no table of rows by classes, or of classes by classes, is ever whole."""

import pytest
from benchmarks import many_classes
from benchmarks.measure import in_fresh_process


@pytest.mark.parametrize("objective", ["mi", "tsa"])
def test_a_run_with_many_classes_stays_small(objective):
    """A float64 table of 5,000 × 5,000 has 191 MB; with whole ones both runs took 4.9 GB."""
    words = ("--rows=5000", "--classes=5000", "--steps=3", f"--only={objective}")
    row = in_fresh_process("benchmarks.many_classes", *words)
    assert row is not None
    assert row["peak_mb"] < 1000
    assert row["metrics_kb"] < 1000
    assert row["folder_mb"] < 200


def test_rows_are_clusters_of_all_classes():
    x, y = many_classes.rows_of(40, 20, 0.0, 1)
    assert x.shape == (40, many_classes.DIM)
    assert sorted(set(y)) == [*range(20)]
