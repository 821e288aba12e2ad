from itertools import pairwise

import pytest
import torch
from torch import nn

from tsadapt.analysis.augment import Augmenter
from tsadapt.analysis.reverse_mapping import Extractor, Search, reconstruct, search_feature
from tsadapt.analysis.wgan_gp import LATENT, Generator
from tsadapt.core import FeatureMemory
from tsadapt.models.build import Architecture, build


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


def test_stage_1_takes_the_best_restart_and_changes_no_network(networks):
    generator, extractor = networks
    before = weights(generator, extractor.model)
    x = generator(torch.randn(3, LATENT))
    search = Search(steps=60, lr=0.5)
    one = reconstruct(generator, extractor, x, 0.005, search, restarts=1, seed=1)
    three = reconstruct(generator, extractor, x, 0.005, search, restarts=4, seed=1)
    assert (three.last <= three.first).all()
    # The best of the four beginnings, each searched by itself.
    starts = torch.randn(12, LATENT, generator=torch.Generator().manual_seed(1))
    each = [reconstruct(generator, extractor, x, 0.005, search, 1, start=starts[i::4]).last for i in range(4)]
    assert torch.allclose(three.last, torch.stack(each).amin(0), rtol=0.05)
    assert three.z.shape == (3, LATENT)
    assert all(torch.equal(a, b) for a, b in zip(before, weights(generator, extractor.model), strict=True))
    assert not extractor.model.training
    # Each image has a search of its own: alone it ends where it ends among others.
    assert torch.allclose(
        search_feature(generator, extractor, extractor.features(x)[:1], one.z[:1], search).last,
        search_feature(generator, extractor, extractor.features(x), one.z, search).last[:1],
        rtol=1e-3, atol=1e-5,
    )  # fmt: skip


def test_losses_fall_over_windows(networks):
    generator, extractor = networks
    x, goal = generator(torch.randn(4, LATENT)), extractor.features(generator(torch.randn(4, LATENT)))
    for history in (
        reconstruct(generator, extractor, x, 0.005, Search(steps=80, lr=0.3), restarts=2).history,
        search_feature(generator, extractor, goal, torch.randn(4, LATENT), Search(steps=80, lr=0.3)).history,
    ):
        assert all(b <= a for a, b in pairwise(history))
        assert history[-1] < 0.9 * history[0]


def test_a_flat_search_stops_early(networks):
    generator, extractor = networks
    goal = extractor.features(generator(torch.randn(2, LATENT)))
    found = search_feature(generator, extractor, goal, torch.randn(2, LATENT), Search(steps=500, lr=1e-9, window=5))
    assert len(found.history) < 20


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
    with pytest.raises(ValueError, match="strength is -1"):
        augmenter.at(drawn, -1, shift, spread)
