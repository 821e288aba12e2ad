"""A run with many classes stays small: no table of rows by classes, or of classes by classes, is ever whole."""

import pytest
from benchmarks import many_classes
from benchmarks.measure import in_fresh_process


@pytest.mark.parametrize(("objective", "peak", "folder"), [("mi", 900, 220), ("tsa", 1000, 250)])
def test_a_run_with_many_classes_stays_small(objective, peak, folder):
    """A table of 5,000 × 5,000 has 95 MB in float32 and 191 MB in float64; with whole ones both runs took 4.9 GB.

    One such table is meant: mutual information's memory of predictions, in the run and in its checkpoint. Six runs
    took 781 to 817 MB (mi) and 871 to 888 MB (tsa), with folders of 175 and 205 MB: one table more is too much.
    """
    row = in_fresh_process("benchmarks.many_classes", "--rows=5000", "--classes=5000", f"--only={objective}")
    assert row is not None
    assert row["steps"] == 79  # one pass: all rows of the memory are written
    assert row["peak_mb"] < peak
    assert row["metrics_kb"] < 1000
    assert row["folder_mb"] < folder


def test_rows_are_clusters_of_all_classes():
    x, y = many_classes.rows_of(40, 20, 0.0, 1)
    assert x.shape == (40, many_classes.DIM)
    assert sorted(set(y)) == [*range(20)]
