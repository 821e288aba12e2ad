import pytest
import torch
from torch import nn

from tsadapt.errors import UserError
from tsadapt.models.classifier import InputScaling
from tsadapt.models.networks import NETWORKS, Architecture, build, network_for

FEATURES = {"small-16": 64, "mcd-28": 100, "mcd-32": 2048, "lenet": 500, "dtn": 512}


def test_every_network_of_images_is_here():
    assert set(FEATURES) == {name for name in NETWORKS if NETWORKS[name].takes is not None}


@pytest.mark.parametrize("name", FEATURES)
def test_digit_networks(name):
    takes = NETWORKS[name].takes
    model = build(Architecture(name, 10, 0))
    x = torch.randint(256, (4, takes.channels, takes.size, takes.size), dtype=torch.uint8)
    features, logits = model(x)
    assert tuple(features.shape) == (4, FEATURES[name])
    assert tuple(logits.shape) == (4, 10)
    assert isinstance(model.head, nn.Linear)
    model.eval()
    features, logits = model(x)
    torch.testing.assert_close(logits, features @ model.head.weight.T + model.head.bias)
    groups = model.parameter_groups(0.1)
    assert sum(len(g["params"]) for g in groups) == len([*model.parameters()])
    assert {g["lr"] for g in groups} == {0.1}


def test_published_sizes():
    """Parameters counted by hand from the layers of MCD's 28×28 network."""
    convolutions = (32 * 25 + 32) + (48 * 32 * 25 + 48) + 2 * (32 + 48)
    dense = (768 * 100 + 100) + (100 * 100 + 100) + 4 * 100 + (100 * 10 + 10)
    assert sum(p.numel() for p in build(Architecture("mcd-28", 10, 0)).parameters()) == convolutions + dense


@pytest.mark.parametrize("name", ["small-16", "mcd-28", "mcd-32"])
def test_pooling_before_relu_gives_the_bits_of_the_published_order(name):
    torch.manual_seed(0)
    network = NETWORKS[name]
    x = torch.randn(4, network.takes.channels, network.takes.size, network.takes.size)
    ours = [*network.make(Architecture(name, 10, 0)).backbone]
    pools = [i for i, layer in enumerate(ours) if isinstance(layer, nn.MaxPool2d)]
    assert len(pools) == 2
    published = ours.copy()
    for i in pools:
        assert isinstance(ours[i + 1], nn.ReLU)
        published[i : i + 2] = [ours[i + 1], ours[i]]
    found = []
    for layers in (ours, published):
        torch.manual_seed(1)
        result = nn.Sequential(*layers)(x)
        found.append([result, *torch.autograd.grad(result.square().sum(), [*nn.Sequential(*layers).parameters()])])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_pretrained_backbones_learn_slowly():
    model = build(Architecture("small-16", 10, 0))
    model.pretrained = True
    assert [g["lr"] for g in model.parameter_groups(0.1)] == pytest.approx([0.01, 0.1])


def test_vectors_are_standardised_by_the_source():
    rows = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    model = build(Architecture("linear", 3, 2), rows)
    assert model.scaling(rows).tolist() == [[-1, 0], [1, 0]]  # a constant feature is only centred
    assert build(Architecture("mlp", 3, 2, bottleneck=7), rows)(rows)[0].shape == (2, 7)
    # Saved with the weights, so that a loaded network takes raw data.
    again = build(Architecture("linear", 3, 2))
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.scaling(rows), model.scaling(rows))


def test_pixels_go_from_minus_one_to_one():
    assert InputScaling.of_pixels()(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-1, 1]


@pytest.mark.parametrize(
    ("source", "target", "shapes", "expected"),
    [
        ("digits:uci", "digits:mnist-5k", ((1, 8, 8), (1, 28, 28)), "small-16"),
        ("digits:mnist", "digits:usps", ((1, 28, 28), (1, 16, 16)), "mcd-28"),
        ("digits:svhn", "digits:mnist", ((3, 32, 32), (1, 28, 28)), "mcd-32"),
        ("a.npz", "b.npz", ((3, 64, 64), (3, 64, 64)), "dtn"),
        ("a.npz", "b.npz", ((1, 12, 12), (1, 12, 12)), "small-16"),
    ],
)
def test_network_by_the_data(source, target, shapes, expected):
    assert network_for(source, target, shapes) == expected


def test_unknown_network():
    with pytest.raises(UserError, match="Did you mean 'lenet'"):
        build(Architecture("lenett", 10, 0))
    assert "mlp" in NETWORKS
