"""The opponents compute what we compute, and the tables can be made."""

import json

import pytest
import torch
from benchmarks import growth, literal, loss, training_step
from benchmarks.measure import interleave

from tsadapt.core import FeatureMemory, transferable_cross_entropy

SMALL = loss.Size(source=90, target=80, classes=5, dim=8)


@pytest.mark.parametrize("manner", ["published", "sensible"])
def test_literal_implementations_equal_ours(manner):
    mean = getattr(literal, f"{manner}_mean")
    statistics = getattr(literal, f"{manner}_statistics")
    problem = loss.Problem(SMALL)
    memories = []
    for features, labels in (problem.source, problem.target):
        memory = FeatureMemory(len(features), SMALL.dim, SMALL.classes)
        memory.write(torch.arange(len(features)), features, labels)
        memories.append(memory)
    f_s, y_s, *_ = problem.batch()
    logits, weight = f_s @ problem.weight.T, problem.weight
    mean_t, covariance = statistics(*problem.target, SMALL.classes)
    shift = mean_t - mean(*problem.source, SMALL.classes)
    theirs = literal.literal_loss(logits, y_s, weight, shift, covariance, 0.2)
    ours = transferable_cross_entropy(logits, y_s, weight, *memories, 0.2)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(*(torch.autograd.grad(x, (f_s, weight), retain_graph=True) for x in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b)


def test_steps_run_and_take_turns():
    problem = loss.Problem(SMALL)
    times = interleave({name: make(problem) for name, make in loss.CONTESTANTS.items()}, rounds=3, seconds=1)
    assert set(times) == {"ours", "sensible", "published"}
    assert all(seconds > 0 for seconds in times.values())


def test_peak_memory_is_printed(monkeypatch, capsys):
    monkeypatch.setitem(loss.SIZES, "Office-31", SMALL)
    loss.print_peak("Office-31", "ours")
    assert json.loads(capsys.readouterr().out)["bytes"] >= 0


def test_other_tables_have_steps():
    memory, step = growth.make(target=300, classes=3, dim=4)
    step()
    assert memory.strategy == "running sums"
    case = training_step.Case(torch.nn.Identity, (6,), 6, 3, 4, 20, 30)
    # The body has no parameters here, the head has.
    for kind in ("source", "ce", "tsa"):
        training_step.make(case, kind)()
