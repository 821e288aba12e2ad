"""Options of `tsa` beyond the paper: off they change nothing, on they do what they say, and a run resumes exactly."""

import pytest
import torch
from tests.configs import changed, run_config
from torch import nn

from tsadapt.core import RowStatistics, average_weights, transferable_cross_entropy
from tsadapt.errors import UserError
from tsadapt.training.setup import make_task, make_trainer

OPTIONS = [
    {"common_shift": False},
    {"purity_strength": True},
    {"confidence_weights": True},
    {"teacher": 0.9},
    {"common_shift": False, "purity_strength": True, "confidence_weights": True, "teacher": 0.5},
]
OFF = {"common_shift": True, "purity_strength": False, "confidence_weights": False, "teacher": 0.0}


def started(config, steps=0):
    trainer = make_trainer(make_task(config))
    trainer.fill_memory()
    for _ in range(steps):
        trainer.step()
    return trainer


def looked_at(trainer):
    """The next batch through the network, and taken in by the memories."""
    out, _ = trainer.forward(trainer.batches.at(trainer.at + 1), (trainer.at + 1) / trainer.steps)
    trainer.statistics.observe(out)
    return out


def weights_of(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def bound(out, target, strength, **more):
    source = out.statistics("source", "memory", 0)
    return transferable_cross_entropy(
        out.source.logits, out.labels(), out.heads[0].weight, source, target, strength, **more
    )


def test_off_they_are_no_part_of_the_config_nor_of_the_state(config):
    assert changed(config, **OFF).hash() == config.hash()
    assert not started(config).objective.source_term.state_dict()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("method", ["source-only", "jada"])
def test_on_they_change_the_training_and_it_resumes_exactly(config, options, method):
    config = changed(config, method=method)
    plain, whole = started(config, 5), started(changed(config, **options), 5)
    assert not same(weights_of(plain), weights_of(whole))
    torch.save(whole.state(), "state.pt")
    again = make_trainer(make_task(changed(config, **options)))
    again.load(torch.load("state.pt", weights_only=True))
    for _ in range(5):
        assert whole.step(describe=True) == again.step(describe=True)
    assert same(weights_of(whole), weights_of(again))
    state, restored = whole.objective.state_dict(), again.objective.state_dict()
    assert all(torch.equal(state[name], restored[name]) for name in state)


@pytest.mark.parametrize("options", [options for options in OPTIONS if "teacher" not in options], ids=str)
def test_without_strength_none_of_them_matters(config, options):
    plain = changed(config, lambda0=0.0)
    assert same(*(weights_of(started(one, 4)) for one in (plain, changed(plain, **options))))


def test_the_common_shift_is_left_out(config):
    trainer = started(changed(config, common_shift=False), 2)
    out = looked_at(trainer)
    strength = 0.25 * out.progress
    expected = bound(out, out.statistics("target", "memory", 0), strength, common_shift=False)
    torch.testing.assert_close(trainer.objective.source_term(out), expected)


def guesses(out):
    """Label and confidence of the rows of the batch."""
    p = out.target.logits.detach().softmax(1)
    return {row: (int(one.argmax()), float(one.max())) for row, one in zip(out.target.index.tolist(), p, strict=True)}


def test_purity_is_the_mean_confidence_of_a_pseudo_label(config):
    trainer = started(changed(config, purity_strength=True))
    kept = {}
    for _ in range(3):
        kept |= guesses(looked_at(trainer))
        trainer.step()
    term, out = trainer.objective.source_term, looked_at(trainer)
    loss = term(out)
    kept |= guesses(out)
    memory = out.statistics("target", "memory", 0)
    purity = []
    for c in range(3):
        sure = [
            kept[row][1] if row in kept else 1 / 3
            for row in range(memory.size)
            if (kept[row][0] if row in kept else int(memory.labels[row])) == c
        ]
        purity.append(max(sum(sure) / len(sure), 1 / 3) if sure else 1 / 3)
    torch.testing.assert_close(term.purity(out), torch.tensor(purity))
    assert len({round(one, 3) for one in purity}) > 1
    strength = 0.25 * out.progress * torch.tensor(purity)
    torch.testing.assert_close(loss, bound(out, memory, strength))
    assert term.describe(out)["purity"] == pytest.approx(sum(purity) / 3)


def test_confidences_weigh_the_statistics(config):
    trainer = started(changed(config, confidence_weights=True), 4)
    term, out = trainer.objective.source_term, looked_at(trainer)
    loss = term(out)
    memory = out.statistics("target", "memory", 0)
    assert memory.second is None  # variances are taken from the rows
    p = out.target.logits.detach().softmax(1).max(1).values
    torch.testing.assert_close(term.confidence[out.target.index], p)
    weighted = RowStatistics(memory.features, memory.labels, 3, term.confidence)
    torch.testing.assert_close(loss, bound(out, weighted, 0.25 * out.progress))
    assert loss != bound(out, memory, 0.25 * out.progress)
    assert term.describe(out)["variance_term"] > 0


def test_the_teacher_is_the_average_of_the_weights_and_labels_the_rows(config):
    trainer = started(changed(config, teacher=0.6))
    term = trainer.objective.source_term
    average, labels = {name: v.clone() for name, v in trainer.model.state_dict().items()}, {}
    for step in range(1, 6):
        out = looked_at(trainer)
        momentum = min(0.6, 1 - 1 / (step + 1))
        network = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        loss = term(out)
        for name, value in network.items():
            if value.is_floating_point():
                average[name] = average[name] + (1 - momentum) * (value - average[name])
                torch.testing.assert_close(term.average.state_dict()[name], average[name])
        again = term(out)  # asked twice in a step, it takes in the network once
        assert torch.equal(loss, again)
        with torch.no_grad():
            guess = term.average(out.inputs[1])[1].argmax(1)
        labels |= dict(zip(out.target.index.tolist(), guess.tolist(), strict=True))
        trainer.step()
        assert int(term.steps_taught) == step
    out = looked_at(trainer)
    loss = term(out)
    memory = out.statistics("target", "memory", 0)
    own = torch.tensor([labels.get(row, int(memory.labels[row])) for row in range(memory.size)])
    own[out.target.index] = term.pseudo_labels_of_rows[out.target.index]
    torch.testing.assert_close(loss, bound(out, RowStatistics(memory.features, own, 3), 0.25 * out.progress))
    assert all(not p.requires_grad for p in term.average.parameters())
    assert not torch.equal(trainer.model.head.weight, term.average.head.weight)


def test_averages_of_weights():
    average, network = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    network.running_mean.fill_(8)
    network.num_batches_tracked.fill_(5)
    average_weights(average, network, 0.75)
    assert average.running_mean.tolist() == [2, 2]
    assert int(average.num_batches_tracked) == 5
    average_weights(average, network, 0)
    assert average.running_mean.tolist() == [8, 8]
    with pytest.raises(ValueError, match="momentum is 2"):
        average_weights(average, network, 2)


@pytest.mark.parametrize("option", [{"purity_strength": True}, {"confidence_weights": True}, {"teacher": 0.9}], ids=str)
def test_options_that_look_at_rows_need_a_memory(option):
    with pytest.raises(UserError, match="needs the rows of the target: leave out estimator iterative"):
        run_config("a", "b", tsa=True, estimator="iterative", **option)
