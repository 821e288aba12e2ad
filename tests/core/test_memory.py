import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core import naive

from tsadapt.core import FeatureMemory, keeps_second_moments, projection
from tsadapt.core import memory as memory_module

close = torch.testing.assert_close
BOTH = pytest.mark.parametrize("second_moments", [False, True], ids=["projection", "running sums"])
SIZE, DIM, CLASSES = 12, 3, 4


def make(second_moments, **more):
    return FeatureMemory(SIZE, DIM, CLASSES, second_moments=second_moments, **more)


@st.composite
def writes(draw):
    """Batches of (index, features, labels), indices repeated within and across batches."""
    batches = []
    for n in draw(st.lists(st.integers(1, 8), min_size=1, max_size=6)):
        index = draw(st.lists(st.integers(0, SIZE - 1), min_size=n, max_size=n))
        labels = draw(st.lists(st.integers(0, CLASSES - 1), min_size=n, max_size=n))
        seed = draw(st.integers(0, 99))
        features = torch.randn(n, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        batches.append((torch.tensor(index), features, torch.tensor(labels)))
    return batches


def assert_equals_brute_force(memory, rows, rtol=1e-9, atol=1e-9):
    """`rows` is {index: (feature, label)}: the memory knows these, and their moments, and nothing else."""
    for i, (feature, label) in rows.items():
        assert torch.equal(memory.features[i], feature)
        assert memory.labels[i] == label
    untouched = [i for i in range(memory.size) if i not in rows]
    assert (memory.features[untouched] == 0).all()
    features = torch.stack([feature for feature, _ in rows.values()])
    expected = naive.class_moments(features, torch.tensor([label for _, label in rows.values()]), memory.classes)
    moments = memory.moments()
    assert torch.equal(moments.count, expected.count)
    close(moments.mean.double(), expected.mean, rtol=rtol, atol=atol)
    close(moments.covariance.double(), expected.covariance, rtol=rtol, atol=atol)
    weight = torch.randn(memory.classes, memory.dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for classes in (None, torch.tensor([2, 0])):
        variances = memory.variances_along(weight.to(moments.mean.dtype), classes)
        close(variances.double(), expected.variances_along(weight, classes), rtol=rtol, atol=10 * atol)


@BOTH
@given(batches=writes())
@settings(max_examples=25, deadline=None)
def test_equals_brute_force_after_any_writes(second_moments, batches):
    memory = make(second_moments, dtype=torch.float64)
    rows = {}
    for index, features, labels in batches:
        memory.write(index, features, labels)
        rows |= dict(zip(index.tolist(), zip(features, labels.tolist(), strict=True), strict=True))  # the last wins
    assert_equals_brute_force(memory, rows)
    memory.rebuild()
    assert_equals_brute_force(memory, rows)


@BOTH
def test_a_row_that_changes_its_label_leaves_its_old_class(second_moments):
    memory = make(second_moments)
    memory.write(torch.tensor([0, 1]), torch.ones(2, DIM), torch.tensor([1, 1]))
    memory.write(torch.tensor([0]), torch.full((1, DIM), 5.0), torch.tensor([3]))
    moments = memory.moments()
    assert moments.count.tolist() == [0, 1, 0, 1]
    assert moments.mean[1].tolist() == [1, 1, 1]
    assert moments.mean[3].tolist() == [5, 5, 5]
    assert moments.covariance.abs().max() == 0


def test_nothing_written_is_nothing():
    moments = make(None).moments()
    assert moments.count.sum() == 0
    assert moments.mean.abs().sum() == moments.covariance.abs().sum() == 0


@BOTH
def test_half_precision_storage_sums_the_rows_as_stored(second_moments):
    g = torch.Generator().manual_seed(0)
    memory = make(second_moments, dtype=torch.float16)
    rows = {}
    for _ in range(20):
        index = torch.randperm(SIZE, generator=g)[:5]
        features, labels = torch.randn(5, DIM, generator=g), torch.randint(CLASSES, (5,), generator=g)
        memory.write(index, features, labels)
        rows |= dict(zip(index.tolist(), zip(features.half(), labels.tolist(), strict=True), strict=True))
    assert memory.features.dtype == torch.float16
    assert memory.moments().mean.dtype == torch.float32
    assert_equals_brute_force(memory, rows, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ratio", [1, 300])
def test_hundred_thousand_writes_do_not_drift(ratio, monkeypatch):
    monkeypatch.setattr(memory_module, "REBUILD_EVERY", 10**9)  # even without any help from a rebuild
    g = torch.Generator().manual_seed(0)
    memory = FeatureMemory(500, 8, 5, second_moments=True)
    assert memory.rebuild_every == 10**9
    for _ in range(100_000 // 100):
        index = torch.randperm(500, generator=g)[:100]
        memory.write(index, ratio + torch.randn(100, 8, generator=g), torch.randint(5, (100,), generator=g))
    expected = naive.class_moments(memory.features, memory.labels, 5)
    found = memory.moments()
    assert torch.equal(found.count, expected.count)
    close(found.mean.double(), expected.mean, rtol=1e-6, atol=0)
    scale = expected.covariance.diagonal(dim1=1, dim2=2).mean()
    assert (found.covariance - expected.covariance).abs().max() / scale < 1e-5


def test_rebuilds_by_itself(monkeypatch):
    monkeypatch.setattr(memory_module, "REBUILD_EVERY", 20)
    memory = make(True)
    for _ in range(3):
        memory.write(torch.arange(6), torch.randn(6, DIM), torch.zeros(6, dtype=torch.int64))
    memory.total += 100  # as if rounding had crept in
    memory.write(torch.arange(6), torch.ones(6, DIM), torch.zeros(6, dtype=torch.int64))
    assert memory.written == 0
    assert memory.moments().mean[0].tolist() == [1, 1, 1]


@BOTH
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_rows_that_are_not_finite_are_passed_over(second_moments, bad):
    memory = make(second_moments)
    good = torch.ones(3, DIM)
    memory.write(torch.arange(3), good, torch.tensor([0, 0, 1]))
    spoiled = 2 * good
    spoiled[1, 2] = bad
    memory.write(torch.arange(3), spoiled, torch.tensor([0, 0, 1]))
    assert memory.features[:3, 0].tolist() == [2, 1, 2]
    assert memory.moments().mean[0].tolist() == [1.5, 1.5, 1.5]
    memory.write(torch.tensor([5]), torch.full((1, DIM), bad), torch.tensor([2]))
    assert memory.moments().count.tolist() == [2, 1, 0, 0]


def test_too_large_for_the_storage_is_not_finite():
    memory = make(False, dtype=torch.float16)
    memory.write(torch.tensor([0]), torch.full((1, DIM), 1e6), torch.tensor([0]))
    assert memory.moments().count.sum() == 0


@BOTH
def test_goes_on_identically_after_a_restart(second_moments, monkeypatch):
    monkeypatch.setattr(memory_module, "REBUILD_EVERY", 30)

    def run(memory, steps):
        for step in steps:
            g = torch.Generator().manual_seed(step)
            index = torch.randint(SIZE, (5,), generator=g)
            memory.write(index, torch.randn(5, DIM, generator=g), torch.randint(CLASSES, (5,), generator=g))
        return memory

    whole = run(make(second_moments), range(20))
    half = run(make(second_moments), range(9))
    file = io.BytesIO()
    torch.save(half.state_dict(), file)
    file.seek(0)
    again = make(second_moments)
    again.load_state_dict(torch.load(file, weights_only=True))
    run(again, range(9, 20))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_casts_leave_the_precision_alone():
    memory = make(True, dtype=torch.float16)
    memory.half().double().to(torch.bfloat16)
    assert memory.features.dtype == torch.float16
    assert memory.total.dtype == memory.second.dtype == torch.float64
    assert memory.to("meta").features.device.type == "meta"


def test_rows_carry_no_graph():
    memory = make(None)
    features = torch.randn(2, DIM, requires_grad=True) * 2
    memory.write(torch.tensor([0, 1]), features, torch.tensor([0, 1]))
    assert not any(buffer.requires_grad for buffer in memory.buffers())


@pytest.mark.parametrize(
    ("size", "dim", "classes", "expected"),
    [
        (795, 256, 31, False),  # Office-31
        (4357, 256, 65, False),  # Office-Home
        (55388, 256, 12, True),  # VisDA-2017
        (50000, 256, 345, False),
        (795, 2048, 31, False),
        (60000, 100, 10, True),  # digits
        (10**9, 2048, 345, False),  # would not fit
    ],
)
def test_cost_rule(size, dim, classes, expected):
    assert keeps_second_moments(size, dim, classes) is expected


def test_strategy_is_the_callers_choice():
    assert make(True).strategy == "running sums"
    assert make(False).strategy == "projection"
    assert "projection" in repr(make(False))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"index": torch.tensor([0, SIZE])}, f"index contains {SIZE}, expected values from 0 to {SIZE - 1}"),
        ({"index": torch.tensor([0, -1])}, "index contains -1"),
        ({"index": torch.tensor([0])}, r"index has shape \(1,\), expected \(2,\)"),
        ({"features": torch.zeros(2, DIM + 1)}, r"features has shape \(2, 4\), expected \(any, 3\)"),
        ({"features": torch.zeros(DIM)}, "features has shape"),
        ({"labels": torch.tensor([0, CLASSES])}, f"labels contains {CLASSES}"),
        ({"labels": torch.tensor([0.0, 1.0])}, "labels has dtype torch.float32"),
    ],
)
def test_wrong_writes_are_named_and_leave_the_memory_alone(change, message):
    memory = make(True)
    memory.write(torch.tensor([0, 1]), torch.ones(2, DIM), torch.tensor([0, 1]))
    before = {name: value.clone() for name, value in memory.state_dict().items()}
    arguments = {"index": torch.tensor([0, 1]), "features": torch.zeros(2, DIM), "labels": torch.tensor([0, 1])}
    with pytest.raises((ValueError, TypeError), match=message):
        memory.write(**(arguments | change))
    assert all(torch.equal(value, before[name]) for name, value in memory.state_dict().items())


@pytest.mark.parametrize("sizes", [(0, 3, 4), (12, 0, 4), (12, 3, 0)])
def test_wrong_sizes_are_named(sizes):
    with pytest.raises(ValueError, match="is 0, expected at least 1"):
        FeatureMemory(*sizes)


def test_integer_storage_is_refused():
    with pytest.raises(TypeError, match="expected a floating-point dtype"):
        make(None, dtype=torch.int32)


@pytest.mark.parametrize("classes", [None, torch.tensor([3, 0, 2])], ids=["all", "some"])
def test_large_projections_in_tiles_equal_those_in_one_table(classes, monkeypatch):
    g = torch.Generator().manual_seed(0)
    memory = FeatureMemory(40, DIM, 5, second_moments=False, dtype=torch.float64)
    index = torch.arange(30)  # the others are never written
    memory.write(index, torch.randn(30, DIM, generator=g, dtype=torch.float64), index % 4)  # class 4 has none
    weight = torch.randn(5, DIM, generator=g, dtype=torch.float64, requires_grad=True)
    pull = torch.randn(5 if classes is None else 3, 5, generator=g, dtype=torch.float64)

    def both():
        table = memory.variances_along(weight, classes)
        return table, torch.autograd.grad((table * pull).sum(), weight)[0]

    whole = both()
    expected = memory.moments().variances_along(weight, classes)
    monkeypatch.setattr(projection, "MOST_CELLS", 99)  # one class in a tile
    used = []
    plain = projection._tiles
    monkeypatch.setattr(projection, "_tiles", lambda x, w: used.append(plain(x, w)) or used[-1])
    tiled = both()
    assert len(used) == 2
    assert len(used[0]) > 2
    close(tiled, whole)
    close(tiled[0], expected)
    assert torch.autograd.gradcheck(lambda w: memory.variances_along(w, classes), (weight,))
