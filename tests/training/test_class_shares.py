"""The class shares of a target, estimated by a source-only training that leaves the trainer as it was."""

import numpy as np
import pytest
import torch
from tests.configs import changed, run_config
from tests.tasks import write_task

from tsadapt.core import class_shares_by_em
from tsadapt.training.class_shares import estimated_class_shares, shares_by_two_views
from tsadapt.training.setup import make_task, make_trainer

EVEN = torch.full((3,), 1 / 3)


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path, counts=[100, 10, 10])
    return run_config(
        "source.npz", "target.npz", target_terms=("mi",), bottleneck=8, steps=60, batch_size=16, lr=0.05, device="cpu"
    )


def probabilities(guess, sure=0.9, classes=3):
    rest = (1 - sure) / (classes - 1)
    return torch.where(torch.eye(classes, dtype=torch.bool)[torch.tensor(guess)], sure, rest)


def test_em_counts_only_where_the_other_view_has_the_same_first_class():
    p = probabilities([0] * 8 + [1] * 2)
    em = class_shares_by_em(p, EVEN)
    alike = shares_by_two_views(p, p, EVEN)
    expected = 0.9 * (torch.tensor([0.8, 0.2, 0.0], dtype=torch.float64) + em) / 2 + 0.1 / 3
    torch.testing.assert_close(alike, expected.float())
    q = probabilities([1] * 8 + [1] * 2)  # they agree on the last two rows alone
    torch.testing.assert_close(shares_by_two_views(p, q, EVEN), torch.tensor([0.1 / 3, 0.9 + 0.1 / 3, 0.1 / 3]))


def test_without_agreement_classes_are_even():
    p, q = probabilities([0, 1, 2]), probabilities([1, 2, 0])
    found = shares_by_two_views(p, q, EVEN)
    assert found.tolist() == pytest.approx([1 / 3] * 3)
    assert shares_by_two_views(probabilities([0] * 5), probabilities([0] * 5), EVEN).min() > 0


def test_estimates_are_near_the_truth_and_leave_the_trainer_as_it_is(config):
    trainer = make_trainer(make_task(config))
    before = {k: v.clone() for k, v in trainer.model.state_dict().items()}
    generator = torch.random.get_rng_state()
    found = estimated_class_shares(trainer)
    assert np.abs(found.numpy() - np.array([100, 10, 10]) / 120).sum() < 0.3
    assert all(torch.equal(v, before[k]) for k, v in trainer.model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), generator)
    assert trainer.at == 0
    torch.testing.assert_close(estimated_class_shares(make_trainer(make_task(config))), found)


@pytest.mark.parametrize("method", ["mcd", "jada"])
def test_methods_with_networks_of_their_own(config, method):
    trainer = make_trainer(make_task(changed(config, method=method, steps=5)))
    assert estimated_class_shares(trainer).sum().item() == pytest.approx(1)
