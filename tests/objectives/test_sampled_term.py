"""The drawn copies of TSA on every network: without strength they are the features themselves, dropout and all."""

import numpy as np
import pytest
import torch
from tests.configs import changed, run_config

from tsadapt.models.networks import NETWORKS
from tsadapt.training.setup import make_task, make_trainer


def task(network):
    """Random rows of the shape that a network takes."""
    rng = np.random.default_rng(0)
    takes = NETWORKS[network].takes
    for name in ("s", "t"):
        if takes is None:
            x = rng.normal(size=(30, 6))
        else:
            x = rng.integers(0, 256, (30, takes.size, takes.size, takes.channels), dtype=np.uint8)
        np.savez(f"{name}.npz", x=x, y=np.arange(30) % 3)
    return run_config("s.npz", "t.npz", network=network, steps=4, batch_size=8, device="cpu", mi=True, beta=0.0)


def trained(config):
    trainer = make_trainer(make_task(config))
    trainer.fill_memory()
    said = [trainer.step() for _ in range(3)]
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}, said


ONE_HEAD = ("linear", "moons")
PAIRS = [(network, "source-only") for network in NETWORKS]
PAIRS += [(network, "jada") for network in NETWORKS if network not in ONE_HEAD]


@pytest.mark.parametrize(("network", "method"), PAIRS)
@pytest.mark.usefixtures("here")
def test_without_strength_it_is_the_cross_entropy_to_the_bit(network, method):
    config = task(network)
    plain, by_ce = trained(changed(config, method=method))
    sampled, by_draws = trained(changed(config, method=method, source_term="sampled", lambda0=0.0))
    assert [step["ce"] for step in by_ce] == [step["sampled"] for step in by_draws]
    assert all(torch.equal(plain[name], sampled[name]) for name in plain)
    if method == "source-only":
        moved, _ = trained(changed(config, source_term="sampled", lambda0=1.0))
        assert not all(torch.equal(plain[name], moved[name]) for name in plain)  # with strength it is not
