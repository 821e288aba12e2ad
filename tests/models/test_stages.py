"""A backbone in stages: found, counted, and cut in two that together are the whole."""

import pytest
import torch
from tests.photos import TINY
from torch import nn
from torch.nn import functional as F

from tsadapt.errors import UserError
from tsadapt.models.backbones import make_backbone
from tsadapt.models.classifier import InputScaling
from tsadapt.models.encoders import find_backbone
from tsadapt.models.networks import Architecture, build
from tsadapt.models.normalisation import normalisations
from tsadapt.models.stages import Stem, cut_before, find_stage, stages_of


class Small(nn.Module):
    """Two convolutions, and what does not look like a sequence: a sum, a functional layer."""

    size, resize = 16, 18

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4))
        self.second = nn.Conv2d(4, 8, 3, 2, 1)
        self.third = nn.Conv2d(8, 8, 3, 1, 1)

    def forward(self, x):
        x = F.relu(self.first(x))
        y = F.relu(self.second(x))
        y = y + self.third(y)
        return y.mean((2, 3))


def test_stages_with_their_cost_in_the_order_of_computation():
    first, second, third = stages_of(find_backbone(Small(), None))
    assert [stage.name for stage in (first, second, third)] == ["first", "second", "third"]
    assert (first.shape, second.shape, third.shape) == ((3, 16, 16), (4, 8, 8), (8, 4, 4))
    # Multiplications of a convolution: inputs · outputs · kernel · pixels that come out.
    cost = [3 * 4 * 9 * 64, 4 * 8 * 9 * 16, 8 * 8 * 9 * 16]
    assert [stage.share for stage in (first, second, third)] == pytest.approx([c / sum(cost) for c in cost])
    assert (second.stored_bytes, second.parameters) == (4 * 8 * 8 * 2, 4 * 8 * 9 + 8)
    assert [stage.number for stage in (first, second, third)] == [-3, -2, -1]


@pytest.mark.parametrize(
    ("name", "last", "deeper"),
    [
        (TINY, "conv_head", "blocks.3"),
        ("resnet10t", "layer4", "layer4.0"),
        ("torchvision:resnet18", "layer4", "layer3.1"),
        ("torchvision:mobilenet_v2", "features.18", "features.17"),
        ("vit_tiny_patch16_224", "blocks.11", "blocks.4"),
        ("convnext_atto", "stages.3", "stages.2.blocks.1"),
    ],
)
def test_two_halves_are_the_whole(name, last, deeper):
    torch.manual_seed(0)
    backbone = make_backbone(name, "none", None if "vit" in name else 64)
    assert find_stage(backbone, "-1") == last
    x = torch.randn(3, 3, backbone.size, backbone.size)
    for stage in (last, deeper):
        cut = cut_before(backbone, find_stage(backbone, stage))
        whole = backbone.module.eval()
        with torch.no_grad():
            torch.testing.assert_close(cut.after.eval()(cut.before.eval()(x)), whole(x), rtol=1e-5, atol=1e-6)
        mine, others = ({id(p) for p in part.parameters()} for part in (cut.before, cut.after))
        assert not mine & others
        assert mine | others == {id(p) for p in whole.parameters()}
        assert stage in dict(cut.after.named_modules())


def test_what_cannot_be_cut_says_why():
    class Skipping(Small):
        def forward(self, x):
            x = self.first(x)
            return torch.cat([x.mean((2, 3)), self.third(self.second(x)).mean((2, 3))], 1)

    class Choosing(Small):
        def forward(self, x):
            return super().forward(x if x.sum() > 0 else -x)

    class Noisy(Small):
        def forward(self, x):
            return F.dropout(super().forward(x), 0.5, self.training)

    for kind, stage, why in (
        (Skipping, "third", "2 values go past it"),
        (Choosing, "third", "cannot be taken apart into stages"),
        (Noisy, "third", "computes something else in training"),
        (Small, "first", "the first stage"),
    ):
        backbone = find_backbone(kind(), None)
        with pytest.raises(UserError, match=why):
            cut_before(backbone, stage)
    backbone = find_backbone(Small(), None)
    with pytest.raises(UserError, match="Did you mean 'second'"):
        find_stage(backbone, "secnd")
    with pytest.raises(UserError, match="-1 to -3"):
        find_stage(backbone, "-4")
    backbone = make_backbone("torchvision:resnet18", "none", 64)
    with pytest.raises(UserError, match="has no parameters"):
        find_stage(backbone, "maxpool")


def test_the_stem_is_never_in_training_and_never_trained():
    torch.manual_seed(0)
    backbone = find_backbone(Small(), None)
    from dataclasses import replace

    network = build(Architecture("mlp", 3, 8, 4), backbone=replace(backbone, train_from="third")).train()
    stem = network.scaling
    assert isinstance(stem, Stem)
    assert not any(layer.training for layer in stem.modules())
    assert network.backbone.training
    assert [type(layer).__name__ for layer in normalisations(network)] == ["BatchNorm1d"]
    held = {id(p) for p in stem.parameters()}
    trained = [p for group in network.parameter_groups(0.1) for p in group["params"]]
    assert held
    assert not held & {id(p) for p in trained}
    assert len(trained) == len([*network.parameters()]) - len(held)
    images = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8)
    network.eval()
    stored = stem(images)
    assert torch.equal(stored, stored.half().float())
    with torch.no_grad():
        assert torch.equal(network.features(images), network.features(stored.half()))
        whole = backbone.module.eval()
        f = whole(InputScaling.of_images(backbone.mean, backbone.std)(images))
        torch.testing.assert_close(network.backbone(stored), f, rtol=2e-3, atol=2e-3)
    state = {name: 2 * value for name, value in stem.state_dict().items()}
    before = stem(images)
    stem.load_state_dict(state)
    assert not torch.equal(stem(images), before)  # not the folded copy of the weights before
