import pytest
import torch
from torch import nn

from tsadapt.models.normalisation import batch_statistics, normalise_by


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 2))


def test_the_statistics_are_those_of_the_rows():
    net, x = network(), 2 * torch.randn(50, 3) + 5
    normalise_by(net, lambda: net(x))
    before = net[0](x)
    torch.testing.assert_close(net[1].running_mean, before.mean(0))
    torch.testing.assert_close(net[1].running_var, before.var(0))
    assert (net.training, net[1].training, net[1].momentum) == (False, False, 0.1)


def test_batches_count_alike_and_what_was_before_is_forgotten():
    net, x = network(), torch.randn(60, 3)
    net[1].running_mean.fill_(100)
    normalise_by(net, lambda: [net(part) for part in x.split(20)])
    torch.testing.assert_close(net[1].running_mean, net[0](x).mean(0))


def test_everything_is_put_back():
    net, x = network(), torch.randn(8, 3)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with batch_statistics(net):
        normalise_by(net, lambda: net(x + 9))
        assert not torch.equal(net[1].running_mean, before["1.running_mean"])
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_an_error_on_the_way_leaves_the_momentum():
    net = network()
    with pytest.raises(RuntimeError):
        normalise_by(net, lambda: net(torch.zeros(2, 7)))
    assert net[1].momentum == 0.1
