import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsadapt.data.arrays import from_arrays
from tsadapt.data.loader import PairedBatches, RowStream, paired_streams, seeded
from tsadapt.data.transforms import ImageShape, fit_images


@given(rows=st.integers(1, 30), batch=st.integers(1, 50), seed=st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_each_row_once_an_epoch_and_any_step_by_itself(rows, batch, seed):
    forward = RowStream(rows, batch, seed, salt=0)
    stream = torch.cat([forward.rows_at(step) for step in range(1, 2 * rows + 2)])
    for epoch in range(len(stream) // rows):
        assert sorted(stream[epoch * rows : (epoch + 1) * rows].tolist()) == list(range(rows))
    alone = RowStream(rows, batch, seed, salt=0)
    for step in (rows, 1, 2 * rows):
        assert torch.equal(alone.rows_at(step), stream[(step - 1) * batch : step * batch])


def test_orders_differ_by_seed_domain_and_epoch():
    firsts = {
        tuple(RowStream(50, 50, seed, salt).rows_at(step).tolist())
        for seed in (0, 1)
        for salt in (0, 1)
        for step in (1, 2)
    }
    assert len(firsts) == 8
    assert seeded(1, 2).initial_seed() != seeded(2, 1).initial_seed()


def domains():
    source = from_arrays("s", np.arange(20.0).reshape(10, 2), np.arange(10) % 2)
    return source, from_arrays("t", np.arange(14.0).reshape(7, 2), np.zeros(7, int))


def test_batches_carry_rows_and_their_indices():
    source, target = domains()
    streams = paired_streams(source, target, (4, 3), seed=0)
    batch = PairedBatches(source, target.unlabelled(), streams, with_target=True).at(5)
    assert torch.equal(batch.x_s, source.x[batch.i_s])
    assert torch.equal(batch.y_s, source.y[batch.i_s])
    assert torch.equal(batch.x_t, target.x[batch.i_t])
    assert (len(batch.i_s), len(batch.i_t)) == (4, 3)
    assert not hasattr(batch, "y_t")


def test_target_rows_are_left_out_on_request():
    streams = paired_streams(*domains(), (4, 3), seed=0)
    batch = PairedBatches(*domains(), streams, with_target=False).at(1)
    assert batch.x_t is None
    with pytest.raises(ValueError, match="needs labels"):
        PairedBatches(domains()[0].unlabelled(), domains()[1], streams, True)


@pytest.mark.parametrize("channels", [1, 3])
def test_small_images_have_a_second_view_and_vectors_have_none(channels):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (9, channels, 16, 16), dtype=np.uint8)
    source, target = from_arrays("s", x, np.arange(9) % 2), from_arrays("t", x)
    streams = paired_streams(source, target, (4, 6), seed=0)
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    both = PairedBatches(source, target, streams, True, second=True)
    found = [both.at(step).second_t for step in range(1, 8)]
    assert torch.equal(torch.rand(2), expected)  # the generator of the training is left alone
    assert {(v.dtype, tuple(v.shape)) for v in found} == {(torch.uint8, (6, channels, 16, 16))}
    assert torch.equal(found[4], PairedBatches(source, target, streams, True, second=True).at(5).second_t)
    changed = torch.cat([(v != both.at(i).x_t).flatten(1).any(1) for i, v in enumerate(found, start=1)])
    assert float(changed.float().mean()) > 0.7
    assert len({tuple(image.flatten().tolist()) for v in found for image in v}) > 30
    assert PairedBatches(source, target, streams, True).at(1).second_t is None
    assert next(iter(both.all_rows())).second_t is None
    assert PairedBatches(source, target, streams, False, second=True).at(1).second_t is None
    assert PairedBatches(*domains(), paired_streams(*domains(), (4, 3), 0), True, second=True).at(1).second_t is None


def test_fit_images_crops_resizes_and_changes_channels():
    x = torch.zeros(2, 1, 28, 28, dtype=torch.uint8)
    x[:, :, 4:24, 4:24] = 200
    assert (fit_images(x, ImageShape(1, 16, crop=(28, 20))) == 200).all()
    colour = fit_images(x, ImageShape(3, 32))
    assert tuple(colour.shape) == (2, 3, 32, 32)
    assert torch.equal(colour[:, 0], colour[:, 2])
    grey = fit_images(
        torch.tensor([0, 90, 180], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 8, 8), ImageShape(1, 8)
    )
    assert (grey == 90).all()
    assert fit_images(x, ImageShape(1, 28)) is not None
    assert torch.equal(fit_images(x, ImageShape(1, 28)), x)
