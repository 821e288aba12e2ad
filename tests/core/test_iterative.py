import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core import naive

from tsadapt.core import IterativeMoments

close = torch.testing.assert_close


@given(
    seed=st.integers(0, 1000),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    offset=st.sampled_from([0, 300]),
)
@settings(max_examples=30, deadline=None)
def test_any_partition_gives_the_moments_of_all_rows(seed, sizes, offset):
    g = torch.Generator().manual_seed(seed)
    n = sum(sizes)
    rows, labels = offset + torch.randn(n, 3, generator=g), torch.randint(4, (n,), generator=g)
    iterative = IterativeMoments(4, 3)
    for f, y in zip(rows.split(sizes), labels.split(sizes), strict=True):
        iterative.update(f, y)
    expected = naive.class_moments(rows, labels, 4)
    assert torch.equal(iterative.count, expected.count)
    close(iterative.mean, expected.mean)
    close(iterative.covariance, expected.covariance, rtol=1e-7, atol=1e-9)


def test_by_hand():
    iterative = IterativeMoments(2, 1)
    iterative.update(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 0]))  # mean 2, variance 1
    iterative.update(torch.tensor([[8.0], [7.0]]), torch.tensor([0, 1]))  # 1, 3, 8: mean 4, variance 26/3
    assert iterative.count.tolist() == [3, 1]
    assert iterative.mean[:, 0].tolist() == [4, 7]
    assert iterative.covariance[:, 0, 0].tolist() == pytest.approx([26 / 3, 0])


def test_state_and_dtypes():
    iterative = IterativeMoments(2, 3, dtype=torch.float32)
    iterative.update(torch.randn(5, 3).half().requires_grad_(), torch.zeros(5, dtype=torch.int32))
    assert set(iterative.state_dict()) == {"count", "mean", "covariance"}
    assert iterative.bfloat16().covariance.dtype == torch.float32
    with pytest.raises(TypeError, match=r"dtype is torch.float16, expected torch.float32 or torch.float64"):
        IterativeMoments(2, 3, dtype=torch.float16)
    with pytest.raises(ValueError, match="dim is 0"):
        IterativeMoments(2, 0)


def test_rows_that_are_not_finite_are_passed_over():
    iterative = IterativeMoments(2, 1)
    iterative.update(torch.tensor([[1.0], [float("nan")]]), torch.tensor([0, 0]))
    iterative.update(torch.tensor([[float("inf")]]), torch.tensor([1]))
    assert iterative.count.tolist() == [1, 0]
    assert iterative.mean.flatten().tolist() == [1, 0]


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (torch.zeros(2, 4), torch.tensor([0, 1]), r"features has shape \(2, 4\), expected \(any, 3\)"),
        (torch.zeros(2, 3), torch.tensor([0]), r"labels has shape \(1,\)"),
        (torch.zeros(2, 3), torch.tensor([0, 2]), "labels contains 2"),
    ],
)
def test_wrong_input_is_named(features, labels, message):
    with pytest.raises(ValueError, match=message):
        IterativeMoments(2, 3).update(features, labels)
