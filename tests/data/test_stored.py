"""Rows on the disk: read as they are needed, in the order and in the view that is asked for."""

import numpy as np
import pytest
import torch

from tsadapt.data.loader import PairedBatches, paired_streams
from tsadapt.data.stored import StoredRows
from tsadapt.data.types import Domain


@pytest.fixture
def stored(tmp_path):
    """Seven rows in parts of three, in three views, whose numbers say view and row."""

    def part(view, start, stop):
        path = tmp_path / f"{view}-{start}.npy"
        rows = np.arange(start, stop)[:, None, None] + np.zeros((1, 2, 2))
        np.save(path, (100 * view + rows).astype(np.float16))
        return np.load(path, mmap_mode="r")

    parts = [[part(view, start, min(start + 3, 7)) for start in range(0, 7, 3)] for view in range(3)]
    return StoredRows(parts[0], parts[1:])


def test_rows_by_slice_list_and_tensor(stored):
    assert (len(stored), stored.shape, stored.views) == (7, (7, 2, 2), 2)
    assert stored[2:5][:, 0, 0].tolist() == [2, 3, 4]
    assert stored[[6, 0, 6]][:, 1, 1].tolist() == [6, 0, 6]
    rows = stored[torch.tensor([5, 1])]
    assert (rows.dtype, rows.shape, rows[:, 0, 0].tolist()) == (torch.float16, (2, 2, 2), [5, 1])


def test_views_and_subsets(stored):
    rows = torch.tensor([6, 2, 2])
    assert stored.seen(rows, [0, 1, 2])[:, 0, 0].tolist() == [106, 202, 102]
    kept = stored.keep([6, 4, 1])
    assert (len(kept), kept[0:3][:, 0, 0].tolist()) == (3, [6, 4, 1])
    assert kept.seen(torch.tensor([1]), [3])[:, 0, 0].tolist() == [204]
    assert kept.keep([2])[[0]][:, 0, 0].tolist() == [1]
    plain = StoredRows(stored._rows)
    assert plain.seen(torch.tensor([3]), [5])[:, 0, 0].tolist() == [3]


def test_training_draws_views_by_seed_and_step_and_evaluation_sees_none(stored):
    y = torch.arange(7) % 2
    source, target = Domain("s", stored, y, ("a", "b")), Domain("t", stored)
    assert source.kind == "stored"

    def batches(seed):
        return PairedBatches(source, target, paired_streams(source, target, (4, 4), seed), True)

    drawn = [batches(0).at(step) for step in range(1, 41)]
    views = torch.cat([x[:, 0, 0] // 100 for b in drawn for x in (b.x_s, b.x_t)])
    assert 0.4 < float((views == 1).float().mean()) < 0.6
    assert not bool((views == 0).any())
    per_batch = [float((b.x_s[:, 0, 0] // 100).mean()) for b in drawn]
    assert len(set(per_batch)) > 2  # rows of one batch have views of their own
    for b in drawn:
        assert (b.x_s[:, 0, 0] % 100).tolist() == b.i_s.tolist()
        assert (b.x_t[:, 0, 0] % 100).tolist() == b.i_t.tolist()
    assert torch.equal(batches(0).at(17).x_s, drawn[16].x_s)
    assert not torch.equal(batches(1).at(17).x_s, drawn[16].x_s)
    seen = torch.cat([b.x_t[:, 0, 0] for b in batches(0).all_rows()])
    assert sorted(set(seen.tolist())) == [*range(7)]


def test_a_second_view_is_another_one_of_the_same_rows(stored):
    """The first views are what they are without it."""
    y = torch.arange(7) % 2
    source, target = Domain("s", stored, y, ("a", "b")), Domain("t", stored)
    streams = paired_streams(source, target, (4, 4), 0)
    one, two = (PairedBatches(source, target, streams, True, second) for second in (False, True))
    for step in range(1, 21):
        alone, both = one.at(step), two.at(step)
        assert alone.second_t is None
        assert torch.equal(alone.x_t, both.x_t)
        assert torch.equal(both.second_t, two.at(step).second_t)
        first, second = (x[:, 0, 0].int() for x in (both.x_t, both.second_t))
        assert (second % 100).tolist() == both.i_t.tolist()
        assert {(a // 100).item() for a in (*first, *second)} <= {1, 2}
        assert bool((first // 100 != second // 100).all())
    assert next(iter(two.all_rows())).second_t is None
    plain = Domain("t", StoredRows(stored._rows))
    with pytest.raises(ValueError, match="two stored views, found 0"):
        PairedBatches(source, plain, streams, True, second=True).at(1)
