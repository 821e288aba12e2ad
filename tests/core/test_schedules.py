import pytest

from tsadapt.core import augmentation_strength, learning_rate_factor, reversal_coefficient


def test_strength_is_algorithm_1():
    total = 4
    assert [augmentation_strength(t / total, 0.8) for t in range(1, 5)] == pytest.approx([0.2, 0.4, 0.6, 0.8])


@pytest.mark.parametrize(("t", "expected"), [(0, 0), (1000, 0.4621), (5000, 0.9866), (10_000, 0.9999)])
def test_reversal_by_iteration(t, expected):
    total = 20_000
    assert reversal_coefficient(t / total, gain=10 * total / 10_000) == pytest.approx(expected, abs=5e-5)


def test_reversal_by_progress():
    assert reversal_coefficient(0) == 0
    assert reversal_coefficient(1) == pytest.approx(0.9999092)
    assert reversal_coefficient(1, gain=1e6) == 1  # no overflow


@pytest.mark.parametrize(("t", "expected"), [(0, 0.01), (1000, 0.005946), (10_000, 0.001656), (20_000, 0.001019)])
def test_learning_rate_by_iteration(t, expected):
    total = 20_000
    assert 0.01 * learning_rate_factor(t / total, gain=1e-3 * total) == pytest.approx(expected, abs=5e-7)


def test_learning_rate_by_progress():
    assert learning_rate_factor(1) == pytest.approx(11**-0.75)


@pytest.mark.parametrize("schedule", [augmentation_strength, reversal_coefficient, learning_rate_factor])
@pytest.mark.parametrize("progress", [-0.1, 1.1, float("nan")])
def test_progress_is_a_share(schedule, progress):
    with pytest.raises(ValueError, match="expected a share of the training between 0 and 1"):
        schedule(progress)
