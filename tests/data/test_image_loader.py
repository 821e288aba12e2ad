from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.photos import truncate, write_classes, write_flat

from tsadapt.data.image_loader import ImageBatches, Views, grouped, image_pass
from tsadapt.data.loader import paired_streams
from tsadapt.data.open import open_dataset
from tsadapt.data.transforms import Framing, evaluation_transform, strong_transform, training_transform
from tsadapt.errors import UserError

FRAMING = Framing(24, 28, keep_aspect=False)


@pytest.fixture
def domains(tmp_path):
    write_classes(tmp_path / "s")
    write_flat(tmp_path / "t", n=5)
    return open_dataset(str(tmp_path / "s")).train, open_dataset(str(tmp_path / "t")).train


def batches(domains, workers=0, with_target=True, seed=3):
    views = Views(training_transform(FRAMING, "random-crop"), evaluation_transform(FRAMING), 56, workers)
    streams = paired_streams(*domains, (6, 4), seed)
    return ImageBatches(*domains, streams, with_target, views, last=9)


def same(a, b):
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("x_s", "y_s", "i_s", "x_t", "i_t"))


def test_batches_are_the_same_whatever_the_workers_and_wherever_they_start(domains):
    plain = batches(domains)
    expected = {step: plain.at(step) for step in range(1, 8)}
    assert expected[1].x_s.shape == (6, 3, 24, 24)
    assert expected[1].x_t.shape == (4, 3, 24, 24)
    assert torch.equal(expected[2].y_s, domains[0].y[expected[2].i_s])
    for workers in (1, 2):
        ahead = batches(domains, workers)
        for step in (1, 2, 3, 6, 7, 2):  # on, then further on, then back
            assert same(ahead.at(step), expected[step]), (workers, step)
    assert not same(batches(domains, seed=4).at(1), expected[1])


def test_crops_and_flips_vary_from_step_to_step_and_from_image_to_image(domains):
    one = (domains[0].keep([0] * 12), domains[1])
    first, second = (batches(one).at(step) for step in (1, 2))
    pictures = torch.cat([first.x_s, second.x_s])
    assert len({tuple(p.flatten().tolist()) for p in pictures}) == len(pictures)


def test_the_generator_of_the_training_is_left_alone(domains):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    batches(domains).at(1)
    assert torch.equal(torch.rand(3), expected)


def test_a_pass_sees_every_row_of_both_domains_without_chance(domains):
    seen_s, seen_t = set(), set()
    whole = evaluation_transform(FRAMING)
    for batch in batches(domains).all_rows():
        seen_s |= set(batch.i_s.tolist())
        seen_t |= set(batch.i_t.tolist())
        row = int(batch.i_s[0])
        assert torch.equal(batch.x_s[0], whole(domains[0].x.decode(row, 56)))
    assert (seen_s, seen_t) == (set(range(24)), set(range(15)))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_second_view_of_the_target_is_strong_and_leaves_the_first_as_it_is(domains, workers):
    views = Views(
        training_transform(FRAMING, "random-crop"), evaluation_transform(FRAMING), 56, workers,
        strong_transform(FRAMING),
    )  # fmt: skip
    streams = paired_streams(*domains, (6, 4), 3)
    both, plain = ImageBatches(*domains, streams, True, views, 9), batches(domains)
    for step in (1, 2, 5):
        batch = both.at(step)
        assert same(batch, plain.at(step))
        assert batch.second_t.shape == batch.x_t.shape
        assert batch.second_t.dtype == torch.uint8
        changed_pixels = (batch.second_t != batch.x_t).flatten(1).float().mean(1)
        assert bool((changed_pixels > 0.2).all())
        again = ImageBatches(*domains, streams, True, views, 9).at(step)
        assert torch.equal(again.second_t, batch.second_t)
    assert next(iter(both.all_rows())).second_t is None
    assert plain.at(1).second_t is None
    few = (domains[0], domains[1].keep([0] * 5))
    one = ImageBatches(*few, paired_streams(*few, (6, 4), 3), True, views, 9)
    pictures = torch.cat([one.at(step).second_t for step in (1, 2)])
    assert len({tuple(p.flatten().tolist()) for p in pictures}) == 8


def test_without_the_target(domains):
    batch = batches(domains, with_target=False).at(1)
    assert batch.x_t is None
    assert len(batch.i_s) == 6


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_gives_way_to_another_and_is_named(domains, workers):
    source, _ = domains
    truncate(Path(source.x.paths[23]))
    Path(source.x.paths[0]).unlink()
    stream = batches(domains, workers)
    unreadable, seen = {}, []
    for step in range(1, 9):  # twice all rows
        batch = stream.at(step)
        assert torch.equal(batch.y_s, source.y[batch.i_s])
        unreadable |= batch.unreadable
        seen += batch.i_s.tolist()
    assert set(unreadable) == {f"{source.name}: ant/00.png", f"{source.name}: cow/07.png"}
    assert "No such file" in unreadable[f"{source.name}: ant/00.png"]
    assert not {0, 23} & set(seen)
    assert len(seen) == 48
    again = batches(domains, 0)
    assert [i for step in range(1, 9) for i in again.at(step).i_s.tolist()] == seen


def test_a_whole_class_may_be_unreadable(domains):
    source, _ = domains
    for row in range(24):
        if row != 17:
            Path(source.x.paths[row]).unlink()
    assert batches(domains).at(1).i_s.tolist() == [17] * 6


@pytest.mark.parametrize("workers", [0, 1])
def test_a_domain_that_is_damaged_all_over_is_given_up(domains, workers):
    for path in domains[1].x.paths:
        Path(path).write_bytes(b"")
    with pytest.raises(UserError, match=r"No image of .* can be read.*the file is empty"):
        batches(domains, workers).at(1)


def test_one_pass_over_files(domains):
    source, _ = domains
    truncate(Path(source.x.paths[5]))
    found = [*image_pass(source.x, grouped(range(24), 7), evaluation_transform(FRAMING), 56, workers=1)]
    assert [row for some in found for row in some.rows] == [r for r in range(24) if r != 5]
    assert [len(some.x) for some in found] == [6, 7, 7, 3]
    assert "truncated" in found[0].unreadable[5]


def test_views():
    wide = torch.zeros(3, 40, 80, dtype=torch.uint8)
    wide[:, :, 40:] = 200
    centre = evaluation_transform(Framing(20, 20, keep_aspect=True))(wide)
    squashed = evaluation_transform(Framing(20, 20, keep_aspect=False))(wide)
    assert centre.shape == squashed.shape == (3, 20, 20)
    assert abs(float(centre.float().mean()) - 100) < 5
    assert abs(float(squashed.float().mean()) - 100) < 5
    wide[:, :, :20] = 200  # what a square of the centre does not see
    assert abs(float(evaluation_transform(Framing(20, 20, True))(wide).float().mean()) - 100) < 5
    assert float(evaluation_transform(Framing(20, 20, False))(wide).float().mean()) > 140
    ten = evaluation_transform(replace(FRAMING, resize=30), ten_crop=True)(wide)
    assert ten.shape == (10, 3, 24, 24)
    assert torch.equal(ten[4], evaluation_transform(replace(FRAMING, resize=30))(wide))
    assert torch.equal(ten[9], ten[4].flip(-1))
    torch.manual_seed(0)
    center = training_transform(FRAMING, "center-crop")
    kinds = {tuple(center(wide).flatten().tolist()) for _ in range(20)}
    assert len(kinds) == 2  # flipped or not
