from dataclasses import replace

import numpy as np
import pytest
import torch
from paper.analyses.bias import estimation_bias, moment_errors
from paper.analyses.footprint import footprint
from paper.analyses.run_features import features_of_run
from paper.analyses.step_cost import step_costs
from paper.analyses.tsne import in_two_dimensions
from safetensors.torch import load_file
from tests.runs.conftest import write_task

from tsadapt.config import RunConfig
from tsadapt.core import ClassMoments
from tsadapt.errors import UserError
from tsadapt.runs.fit import train_run
from tsadapt.training.setup import make_task
from tsadapt.training.trainer import Trainer


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    return RunConfig(
        "source.npz", "target.npz", source_term="tsa", target_terms=("mi",), network="mlp", bottleneck=8, steps=40,
        batch_size=16, target_batch_size=16, lr=0.05,
    )  # fmt: skip


def moments(mean, spread, count=5):
    c = len(mean)
    return ClassMoments(torch.full((c,), count), torch.tensor(mean), spread * torch.eye(2).expand(c, 2, 2))


def test_errors_of_moments_by_hand():
    ideal_s, ideal_t = moments([[0.0, 0.0], [1.0, 1.0]], 1.0), moments([[3.0, 4.0], [1.0, 1.0]], 1.0)
    nothing = moments([[0.0, 0.0], [0.0, 0.0]], 0.0)
    shift, spread = moment_errors(nothing, nothing, ideal_s, ideal_t)
    assert shift == pytest.approx((5 + 0) / 2)  # ‖(3, 4)‖ and ‖(0, 0)‖
    assert spread == pytest.approx(2**0.5)  # ‖I‖_F
    assert moment_errors(ideal_s, ideal_t, ideal_s, ideal_t) == (0, 0)
    # A class that the ideal does not have is left out.
    empty = ClassMoments(torch.tensor([5, 0]), ideal_t.mean, ideal_t.covariance)
    assert moment_errors(nothing, nothing, ideal_s, empty)[0] == pytest.approx(5)


def test_a_network_that_stands_still_has_no_bias(config):
    """With all rows in every batch nothing differs between them, and both estimates are the ideal."""
    rows = {name: len(np.load(f"{name}.npz")["x"]) for name in ("source", "target")}
    still = replace(config, lr=1e-30, steps=3, batch_size=rows["source"], target_batch_size=rows["target"])
    found = estimation_bias(make_task(still))
    assert [(epoch["epoch"], epoch["step"]) for epoch in found] == [(1, 1), (2, 2), (3, 3)]
    for estimate in ("memory", "iterative"):
        assert max(found[-1][estimate].values()) < 1e-4
    moving = estimation_bias(make_task(replace(still, lr=0.05)))
    assert min(moving[-1]["iterative"].values()) > 1e-2


def test_the_memory_follows_a_network_that_moves(config):
    found = estimation_bias(make_task(config))
    assert found[-1]["memory"]["covariance"] < found[-1]["iterative"]["covariance"]


def test_watching_changes_nothing(config, tmp_path):
    """Looking for the ideal leaves the training as it is: the network ends with the weights that `fit` gives it."""
    seen = {}
    estimation_bias(make_task(config), watch=lambda training: seen.update(training.model.state_dict()))
    out, _ = train_run(config, tmp_path / "run", quiet=True)
    saved = load_file(out / "model" / "model.safetensors")
    assert all(torch.equal(value, seen[name]) for name, value in saved.items())


def test_what_was_stopped_goes_on_to_the_same_bits(config, tmp_path, monkeypatch):
    task, folder = make_task(replace(config, checkpoint_every=8)), tmp_path / "bias"
    whole = estimation_bias(task)
    made, step = [], Trainer.step

    def stopping(training, describe=False):
        if training.at == 30:
            raise KeyboardInterrupt
        made.append(training.at)
        return step(training, describe)

    monkeypatch.setattr(Trainer, "step", stopping)
    with pytest.raises(KeyboardInterrupt):
        estimation_bias(task, folder)
    monkeypatch.setattr(Trainer, "step", lambda trainer, describe=False: made.append(trainer.at) or step(trainer))
    before = len(made)
    assert estimation_bias(task, folder) == whole
    assert 0 < len(made) - before < 40  # not from the beginning
    # With other data it begins anew.
    with np.load("target.npz") as file:
        np.savez("target.npz", x=file["x"] + 0.1)
    changed = estimation_bias(make_task(config), folder)
    assert len(changed) == len(whole)
    assert changed[0] != whole[0]


def test_a_run_looked_at_again(config, tmp_path):
    out, metrics = train_run(config, tmp_path / "run", quiet=True)
    look = features_of_run(out, most=10_000)
    assert len(look.f_t) == metrics["last"]["target"]["rows"]
    assert look.f_s.shape[1] == 8
    assert len(features_of_run(out, most=7).f_s) == 7
    (tmp_path / "target.npz").unlink()
    with pytest.raises(UserError):
        features_of_run(out, most=7)


def test_two_dimensions():
    rng = np.random.default_rng(0)
    f_s, f_t = rng.normal(size=(40, 5)), rng.normal(size=(30, 5)) + 20
    source, target = in_two_dimensions(f_s, f_t)
    assert source.shape == (40, 2)
    assert target.shape == (30, 2)
    assert np.linalg.norm(source.mean(0) - target.mean(0)) > source.std(0).max()  # far apart stays apart


def test_memory_of_a_fresh_process(config):
    found = footprint(config, steps=2)
    assert found["peak_mb"] > 100  # torch alone
    rows = np.load("target.npz")["x"].shape[0] + np.load("source.npz")["x"].shape[0]
    assert found["statistics_mb"] >= round(rows * 8 * 4 / 1e6, 2)


def test_costs_are_of_what_was_request(config):
    found = step_costs({"plain": replace(config, source_term="ce", target_terms=()), "tsa": config}, rounds=5)
    assert 0 < found["plain"] < found["tsa"]
