from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from paper.analyses.reverse_mapping import Extractor, Search, reconstruct, search_feature
from paper.analyses.wgan_gp import LATENT, Generator
from torch import nn

from tsadapt.core import FeatureMemory
from tsadapt.models.networks import Architecture, build
from tsadapt.report.augmented import Augmenter


@pytest.fixture
def networks():
    torch.manual_seed(0)
    generator = Generator(1, 4).eval().requires_grad_(False)
    return generator, Extractor(build(Architecture("small-16", 3, 0)), 16)


def memories():
    random = torch.Generator().manual_seed(0)
    source, target = FeatureMemory(60, 64, 3), FeatureMemory(50, 64, 3)
    source.write(torch.arange(60), torch.randn(60, 64, generator=random), torch.arange(60) % 3)
    target.write(torch.arange(50), torch.randn(50, 64, generator=random) + 1, torch.arange(50) % 2)  # none of class 2
    return Augmenter(source, target)


def weights(*modules: nn.Module):
    return [value.clone() for module in modules for value in module.state_dict().values()]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_stage_1_stays_where_it_is_right(networks, optimizer):
    generator, extractor = networks
    z = torch.randn(4, LATENT)
    found = reconstruct(
        generator, extractor, generator(z), 0.01, Search(steps=5, optimizer=optimizer), restarts=1, start=z
    )
    assert torch.equal(found.z, z)
    assert found.last.max() == 0
    assert len(found.history) == 1  # nothing to gain, so it stops at once


def test_stage_1_takes_the_best_restart(networks):
    generator, extractor = networks
    x = generator(torch.randn(3, LATENT))
    search = Search(steps=60)
    four = reconstruct(generator, extractor, x, 0.005, search, restarts=4, seed=1)
    assert four.z.shape == (3, LATENT)
    assert four.history.shape == (61, 3)
    assert torch.equal(four.history[0], four.first)
    assert torch.equal(four.history.amin(0), four.last)
    # The best of the four beginnings, each searched by itself.
    starts = torch.randn(12, LATENT, generator=torch.Generator().manual_seed(1))
    each = [reconstruct(generator, extractor, x, 0.005, search, 1, start=starts[i::4]).last for i in range(4)]
    assert torch.allclose(four.last, torch.stack(each).amin(0), rtol=0.05)
    with pytest.raises(ValueError, match="restarts is 0"):
        reconstruct(generator, extractor, x, 0.005, search, 0)


def test_stage_1_aims_at_known_features(networks):
    """Of an image that was resized they are those before."""
    generator, extractor = networks
    z = torch.randn(2, 2, LATENT)
    x, goal = generator(z[0]), extractor.features(generator(z[1]))
    found = reconstruct(generator, extractor, x, 0.0, Search(steps=5), 1, start=z[1], goal=goal)
    assert torch.equal(found.z, z[1])


def test_networks_are_left_as_they_were():
    """Also those that are in training: they are searched frozen and in evaluation mode all the same."""
    torch.manual_seed(0)
    generator, model = Generator(1, 4).train(), build(Architecture("small-16", 3, 0)).train()
    before, x = weights(generator, model), torch.randn(3, 1, 32, 32).tanh()
    extractor = Extractor(model, 16)
    first = reconstruct(generator, extractor, x, 0.005, Search(steps=5), restarts=2)
    second = search_feature(generator, extractor, extractor.features(x), first.z, Search(steps=5))
    assert all(torch.equal(a, b) for a, b in zip(before, weights(generator, model), strict=True))
    for module in (generator, model):
        assert module.training
        assert all(p.requires_grad and p.grad is None for p in module.parameters())
    alone = search_feature(generator, extractor, extractor.features(x[:1]), first.z[:1], Search(steps=5))
    assert torch.allclose(alone.last, second.last[:1], rtol=1e-3)  # by batch statistics it would not


@pytest.mark.parametrize("far", [1.0, 0.1, 0.01])
def test_a_goal_within_reach_is_neared_from_any_distance(networks, far):
    generator, extractor = networks
    z = torch.randn(4, LATENT)
    goal = extractor.features(generator(z + far * torch.randn(4, LATENT)))
    found = search_feature(generator, extractor, goal, z, Search(steps=200))
    assert (found.last < 0.5 * found.first).all()


def test_losses_fall_over_windows(networks):
    generator, extractor = networks
    x, goal = generator(torch.randn(4, LATENT)), extractor.features(generator(torch.randn(4, LATENT)))
    for history in (
        reconstruct(generator, extractor, x, 0.005, Search(steps=80), restarts=2).history,
        search_feature(generator, extractor, goal, torch.randn(4, LATENT), Search(steps=80)).history,
    ):
        windows = [part.mean().item() for part in history.split(20)[:4]]
        assert all(b < a for a, b in pairwise(windows))
        assert windows[-1] < 0.5 * history[0].mean()


def test_each_row_stops_when_it_is_flat(networks):
    generator, extractor = networks
    start = torch.randn(2, LATENT)
    goal = extractor.features(generator(torch.randn(2, LATENT)))
    found = search_feature(generator, extractor, goal, start, Search(steps=500, lr=1e-9, window=5))
    assert len(found.history) < 20
    # One that is there at once, beside one that has a way to go: both end as they would alone.
    goal[0] = extractor.features(generator(start))[0] * (1 + 1e-3)
    search = Search(steps=300, window=5, flat=0.05)
    both = search_feature(generator, extractor, goal, start, search)
    for row in (0, 1):
        some = slice(row, row + 1)
        alone = search_feature(generator, extractor, goal[some], start[some], search)
        assert torch.allclose(alone.last, both.last[some], rtol=0.02)
        assert len(alone.history) <= len(both.history)


def test_searches_that_make_no_sense_are_refused():
    for wrong in ({"optimizer": "lbfgs"}, {"steps": -1}, {"lr": 0.0}, {"window": 0}):
        with pytest.raises(ValueError, match="expected"):
            Search(**wrong)


def test_no_strength_does_not_move(networks):
    generator, extractor = networks
    augmenter = memories()
    z = torch.randn(3, LATENT)
    f = extractor.features(generator(z))
    shift, spread = augmenter.directions(torch.tensor([0, 1, 2]), torch.Generator().manual_seed(0))
    goal = augmenter.at(f, 0.0, shift, spread)
    assert torch.equal(goal, f)
    found = search_feature(generator, extractor, goal, z, Search(steps=10))
    assert torch.equal(found.z, z)
    assert torch.equal(found.images, generator(z))


def test_draws_have_the_papers_mean_and_covariance():
    augmenter = memories()
    labels, random = torch.zeros(4000, dtype=torch.int64), torch.Generator().manual_seed(1)
    shift, spread = augmenter.directions(labels, random)
    wanted = augmenter.target.moments().mean[0] - augmenter.source.moments().mean[0]
    assert torch.allclose(shift[0], wanted, atol=1e-5)
    drawn = augmenter.at(torch.zeros(4000, 64), 0.25, shift, spread)
    assert torch.allclose(drawn.mean(0), 0.25 * wanted, atol=0.06)
    covariance = augmenter.target.moments().covariance[0]
    assert torch.allclose(torch.cov(drawn.T, correction=0), 0.25 * covariance, atol=0.06)
    nothing = augmenter.directions(torch.tensor([2]), random)  # a class without pseudo-labels
    assert not nothing[0].any()
    assert not nothing[1].any()
    # As the run was trained.
    few = replace(augmenter, min_count=26).directions(torch.tensor([0, 1]), random)  # each has 25 target rows
    assert not few[0].any()
    assert not few[1].any()
    assert not replace(augmenter, mean_shift=False).directions(labels[:1], random)[0].any()
    assert not replace(augmenter, covariance=False).directions(labels[:1], random)[1].any()
    with pytest.raises(ValueError, match="strength is -1"):
        augmenter.at(drawn, -1, shift, spread)
