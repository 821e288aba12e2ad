"""ETD: which networks each stage moves and which way, what attention sees, and exact resume across the stages."""

import pytest
import torch
from tests.configs import changed
from tests.objectives.phases import parts, recorded, resumed, same, trainer_of

from tsadapt.core import conditional_entropy, entropic_dual
from tsadapt.training.trainer import Iteration


@pytest.fixture
def etd(config):
    """A step on the source, one of the potentials, then six of all."""
    return changed(config, method="etd", steps=8, pretraining=0.125, potentials_first=0.125, potential_steps=2)


def test_stages_move_what_they_should(etd, monkeypatch):
    trainer = trainer_of(etd)
    seen = recorded(trainer, monkeypatch)
    for _ in range(4):
        trainer.step()
    source, potentials = ("tsa", "mi"), (("transport",), "potentials", {"u", "v"})
    network = ((*source, "transport", "target_entropy"), "", {"extractor", "heads", "query", "key"})
    assert seen == [(source, "", {"extractor", "heads"}), *[potentials] * 4, network, potentials, potentials, network]


def test_potentials_raise_the_distance_and_the_network_lowers_it(etd, monkeypatch):
    config = changed(
        etd, tsa=False, momentum=0.0, weight_decay=0.0, lr=0.05, term_weight={"ce": 0.0, "target_entropy": 0}
    )
    trainer = trainer_of(config, steps=3)
    method, minimize, seen = trainer.objective.method, Iteration.minimize, []
    batch = trainer.batches.at(4)

    def distance():
        with torch.no_grad():
            source, target = (out := trainer.forward(batch, 0.5)[0]).both()
            return entropic_dual(method.u(source.features), method.v(target.features), method.costs(out)).item()

    def watched(self, *args, **kwargs):
        before = distance()
        minimize(self, *args, **kwargs)
        seen.append(distance() - before)

    monkeypatch.setattr(Iteration, "minimize", watched)
    step = Iteration(trainer, batch, describe=False)
    step.progress = 0.5
    method.update(step)
    *raised, lowered = seen
    assert len(raised) == 2
    assert min(raised) > 0
    assert lowered < 0


def test_many_steps_of_the_potentials_find_the_cost_of_transport(etd):
    """On one batch, they come near the largest value of the dual, which a few hundred Sinkhorn rounds give."""
    config = changed(etd, tsa=False, potential_steps=400, pretraining=0.0, potentials_first=1.0, lr=0.02)
    trainer = trainer_of(config)
    step = Iteration(trainer, trainer.batches.at(1), describe=False)
    out = step.forward()
    cost = trainer.objective.method.costs(out).detach()
    u, v = torch.zeros(16), torch.zeros(16)
    for _ in range(300):
        u = -(v - cost).logsumexp(1) + torch.tensor(16.0).log()
        v = -(u[:, None] - cost).logsumexp(0) + torch.tensor(16.0).log()
    best = entropic_dual(u, v, cost).item()
    step.progress = 0.5
    trainer.objective.method.update(step)
    assert -step.values["transport"] <= best + 1e-4
    assert -step.values["transport"] == pytest.approx(best, rel=0.02)


def test_terms_by_their_formulas(etd):
    trainer = trainer_of(etd, steps=2)
    said = trainer.step(describe=True)
    assert {"transport", "target_entropy", "attention"} <= set(said)
    assert 0 < said["attention"] < 1
    method = trainer.objective.method
    out, _ = trainer.forward(trainer.batches.at(4), 0.5)
    source, target = out.both()
    attention = torch.sigmoid(method.query(source.logits) @ method.key(target.logits).T)
    torch.testing.assert_close(method.costs(out), attention * torch.cdist(source.features, target.features))
    assert method.describe(out)["attention"] == pytest.approx(attention.mean().item())
    values, minimize = {}, Iteration.minimize

    def watched(self, terms, only=None, phase=None):
        values.update({name: term.detach() for name, term in terms.items()})
        if phase is None:
            values["by hand"] = conditional_entropy(self.out.target.logits.detach())
        minimize(self, terms, only, phase)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Iteration, "minimize", watched)
        trainer.step()
    torch.testing.assert_close(values["target_entropy"], 0.5 * values["by hand"])


def test_the_published_layers(etd):
    method = trainer_of(etd).objective.method
    assert [tuple(p.shape) for p in method.u.parameters()] == [(512, 8), (512,), (1, 512), (1,)]
    assert [tuple(p.shape) for p in method.query.parameters()] == [(3, 3), (3,)]
    assert method.u[1].negative_slope == 0.2
    for layer in (method.u[0], method.v[2]):
        assert layer.weight.std().item() == pytest.approx(0.05, rel=0.2)
        assert (layer.bias == 0).all()


@pytest.mark.parametrize("stop", [1, 2, 4])
def test_resume_in_and_between_the_stages(etd, stop):
    whole = trainer_of(etd, steps=stop)
    again = resumed(whole)
    for _ in range(3):
        assert whole.step(describe=True) == again.step(describe=True)
    assert same(again.model, whole.model.state_dict())
    assert same(again.objective, whole.objective.state_dict())


def test_without_the_potentials_momentum_a_resumed_run_goes_elsewhere(etd):
    whole = trainer_of(etd, steps=3)
    again = resumed(whole)
    again.optimizers["potentials"].state.clear()
    whole.step(), again.step()
    assert not all(torch.equal(a, b) for a, b in zip(parts(whole)["u"], parts(again)["u"], strict=True))
