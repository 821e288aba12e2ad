"""Sharpness-aware steps (SDAT): numbers of another implementation, a naive step, what moves and what stays."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.configs import changed, run_config
from tests.objectives.phases import parts, recorded, resumed, same, trainer_of

import tsadapt
from tsadapt.config import RunConfig, read_toml, to_toml
from tsadapt.errors import UserError
from tsadapt.objectives.base import METHODS, Method
from tsadapt.objectives.methods.dann import DANN
from tsadapt.objectives.objective import check_objective, uses
from tsadapt.runs.fit import train_run
from tsadapt.runs.folder import RunFolder
from tsadapt.sweep.plan import SOURCE_ONLY
from tsadapt.training.trainer import Iteration, NotFiniteError, Trainer


def test_numbers_of_pytorch_optimizer(tmp_path, monkeypatch):
    """Its SAM (version 4.1.0) around torch's SGD, four steps of a linear softmax on all rows: ρ = 0.5."""
    monkeypatch.chdir(tmp_path)
    x = np.sin(np.arange(24.0)).reshape(8, 3) * np.array([1, 2, 0.5]) + 0.3
    np.savez("s.npz", x=x, y=np.array([0, 1, 2, 0, 1, 2, 1, 0]))
    np.savez("t.npz", x=x)
    config = run_config(
        "s.npz", "t.npz", network="linear", steps=4, batch_size=8, lr=0.1, lr_gamma=0.0, weight_decay=1e-3,
        sdat=True, sdat_rho=0.5, device="cpu",
    )  # fmt: skip
    trainer = trainer_of(config)
    head = trainer.model.head
    with torch.no_grad():
        head.weight.copy_(torch.cos(0.7 * torch.arange(9)).reshape(3, 3))
        head.bias.copy_(torch.tensor([0.1, -0.2, 0.3]))
    for _ in range(4):
        trainer.step()
    expected = [
        [1.1337702578489997, 0.7239701171923332, 0.07056472234467488],
        [-1.1291088533158822, -0.6324786546496531, -0.4010842160229646],
        [0.00022572900739743797, -0.0823703336248806, 0.3395848085217623],
    ]
    torch.testing.assert_close(head.weight.detach(), torch.tensor(expected), rtol=1e-5, atol=1e-6)
    expected = torch.tensor([0.25248216899545795, -0.1572860233433738, 0.10456104098127449])
    torch.testing.assert_close(head.bias.detach(), expected, rtol=1e-5, atol=1e-6)


class Naive(DANN):
    """DANN whose step is written out, for comparison: it moves every parameter by itself."""

    def update(self, step):
        trainer = step._trainer
        task = sum(step.source(step.forward()).values())
        everything = [*trainer.model.parameters(), *self.discriminator.parameters()]
        for p in everything:
            p.grad = None
        task.backward()
        moved = [(p, p.grad.clone(), p.detach().clone()) for p in everything if p.grad is not None]
        length = math.sqrt(sum(float(v) ** 2 for _, g, _ in moved for v in g.flatten().tolist()))
        for p, g, _ in moved:
            p.data += 0.3 * g / length
        out = step.forward()
        for p in everything:
            p.grad = None
        sum({**step.source(out), **self.losses(out)}.values()).backward()
        for p, _, before in moved:
            p.data = before
        trainer.optimizers[""].step()


@pytest.mark.parametrize("terms", [{}, {"tsa": True}])
def test_a_step_written_out(config, terms):
    """The first step from the same weights; what is remembered of the second pass differs after it."""
    config = changed(config, **{"tsa": False, **terms})
    METHODS.register("naive")(Naive)
    try:
        naive = trainer_of(changed(config, method="naive"))
    finally:
        METHODS.forget("naive")
    ours = trainer_of(changed(config, method="dann", sdat=True, sdat_rho=0.3))
    plain = trainer_of(changed(config, method="dann"))
    for trainer in (naive, ours, plain):
        trainer.step()
    pairs = [[*t.model.named_parameters(), *t.objective.named_parameters()] for t in (ours, naive, plain)]
    for (name, a), (_, b), _ in zip(*pairs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=name)
    assert any((a - c).abs().max() > 1e-4 for (_, a), _, (_, c) in zip(*pairs, strict=True))


def watched(trainer: Trainer, monkeypatch) -> list[dict[str, list[torch.Tensor]]]:
    """Filled at every forward pass: the parameters of each part as they are then."""
    seen = []
    forward = trainer.forward

    def forwarded(*args, **kwargs):
        seen.append({name: [p.detach().clone() for p in some] for name, some in parts(trainer).items()})
        return forward(*args, **kwargs)

    monkeypatch.setattr(trainer, "forward", forwarded)
    return seen


def test_the_network_moves_by_rho_and_the_discriminator_stays(config, monkeypatch):
    trainer = trainer_of(changed(config, tsa=False, method="cdan", sdat=True, sdat_rho=0.7))
    seen = watched(trainer, monkeypatch)
    trainer.step()
    first, second = seen
    moved = {
        name: torch.cat([(b - a).flatten() for a, b in zip(first[name], second[name], strict=True)]) for name in first
    }
    assert (moved["discriminator"] == 0).all()
    assert all((moved[name] != 0).any() for name in ("extractor", "heads"))
    whole = torch.cat([moved["extractor"], moved["heads"]])
    assert float(whole.norm()) == pytest.approx(0.7, rel=1e-4)
    assert any(
        not torch.equal(a, b) for a, b in zip(first["discriminator"], parts(trainer)["discriminator"], strict=True)
    )


def test_only_the_task_moves_the_weights(config, monkeypatch):
    """Where they go does not depend on the method's terms, and does on a target term."""
    found = []
    for more in ({}, {"term_weight": {"domain": 9.0}}, {"mi": True}):
        trainer = trainer_of(changed(config, tsa=False, method="dann", sdat=True, **more))
        seen = watched(trainer, monkeypatch)
        trainer.step()
        found.append(seen[1]["extractor"])
    assert all(torch.equal(a, b) for a, b in zip(found[0], found[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(found[0], found[2], strict=True))


def test_weights_come_back_to_the_bit(config, monkeypatch):
    """With a rate of nothing a step leaves the weights as they were, however far they moved for the gradient."""
    trainer = trainer_of(changed(config, method="dann", sdat=True, sdat_rho=1e3))
    before = {name: [p.detach().clone() for p in some] for name, some in parts(trainer).items()}
    trainer.first_rates = [0.0 for _ in trainer.first_rates]
    trainer.step()
    for name, some in parts(trainer).items():
        assert all(torch.equal(a, b) for a, b in zip(before[name], some, strict=True)), name


def test_a_term_that_is_not_finite_up_there_stops_the_run_with_its_name_and_the_weights_as_they_were(config):
    trainer = trainer_of(changed(config, tsa=False, method="dann", sdat=True))
    before = [p.detach().clone() for p in trainer.model.parameters()]
    losses = trainer.objective.method.losses
    trainer.objective.method.losses = lambda out: {
        n: v * (math.nan if out.again else 1) for n, v in losses(out).items()
    }
    with pytest.raises(NotFiniteError, match="'domain' is nan at step 1"):
        trainer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))


def test_no_way_is_as_without(config):
    """A ρ too small to change a weight: the same step from the same outputs, dropout aside."""
    plain, none = (trainer_of(changed(config, **more)) for more in ({}, {"sdat": True, "sdat_rho": 1e-30}))
    for _ in range(3):
        assert plain.step() == none.step()
    assert same(plain.model, none.model.state_dict())
    assert same(plain.objective, none.objective.state_dict())


def buffers(trainer: Trainer) -> dict[str, torch.Tensor]:
    """All that is remembered: running averages, memories, counters, pseudo-labels."""
    found = {**dict(trainer.model.named_buffers()), **dict(trainer.objective.named_buffers())}
    return {name: value.clone() for name, value in found.items() if "average." not in name}


REMEMBERING = [
    {"target_terms": ("mi",), "marginal": "memory"},
    {"target_terms": ("atdoc",)},
    {"target_terms": ("aad",)},
    {"target_terms": ("shot",), "refresh_every": 1},
    {"target_terms": ("anchored",), "anchor_refresh": 1, "anchor_start": 0.0},
    {"target_terms": ("anchored",), "anchor_labels": "neighbours", "anchor_start": 0.0},
    {"source_term": "tsa", "purity_strength": True, "confidence_weights": True},
    {"source_term": "tsa", "estimator": "iterative"},
]
LINEAR = [name for name in METHODS if METHODS[name].update is Method.update and METHODS[name].linear]


@pytest.mark.parametrize("terms", REMEMBERING, ids=lambda terms: "-".join(map(str, terms.values())))
@pytest.mark.parametrize("method", ["source-only", "dann"])
def test_what_is_remembered_is_taken_in_once_from_the_weights_as_they_were(config, method, terms):
    """After the first step memories and running averages are those of a plain run, to the bit."""
    config = changed(config, **{"source_term": "ce", "target_terms": (), **terms, "method": method})
    plain, moved = trainer_of(config), trainer_of(changed(config, sdat=True, sdat_rho=5.0))
    start = buffers(plain)
    plain.step(), moved.step()
    expected, found = buffers(plain), buffers(moved)
    assert any(not torch.equal(start[name], expected[name]) for name in start)
    for name in expected:
        assert torch.equal(expected[name], found[name]), name
    assert not same(plain.model, moved.model.state_dict())  # they did go apart


@pytest.mark.parametrize("method", LINEAR)
def test_running_averages_and_memories_of_every_method_advance_once(config, method):
    config = changed(config, method=method)
    plain, moved = trainer_of(config), trainer_of(changed(config, sdat=True, sdat_rho=5.0))
    plain.step(), moved.step()
    expected, found = buffers(plain), buffers(moved)
    for name in expected:
        assert torch.equal(expected[name], found[name]), name
    assert not same(plain.model, moved.model.state_dict())


def test_a_teacher_takes_in_the_network_once(config):
    config = changed(config, source_term="tsa", teacher=0.9, sdat=True, sdat_rho=5.0)
    plain, moved = trainer_of(changed(config, sdat=False)), trainer_of(config)
    plain.step(), moved.step()
    average = [t.objective.source_term.average.state_dict() for t in (plain, moved)]
    assert all(torch.equal(average[0][name], average[1][name]) for name in average[0])


MOVES = {"mcd": 2, "swd": 2, "adda": 0, "etd": 1, "gsp": 3}
"""Minimisations of source term and target terms in one iteration of the last stage."""


@pytest.mark.parametrize("method", MOVES)
def test_alternating_methods_move_for_every_step_on_the_source(config, method, monkeypatch):
    settings = {"pretraining": 0.1} if "pretraining" in METHODS[method].settings else {}
    settings |= {"potentials_first": 0.1} if method == "etd" else {}
    config = changed(config, tsa=False, method=method, sdat=True, **settings)
    count = []
    moved = Iteration._moved
    monkeypatch.setattr(Iteration, "_moved", lambda self, out, only: (count.append(1), moved(self, out, only))[1])
    trainer = trainer_of(config)
    trainer.step()
    assert len(count) == (1 if settings else MOVES[method])  # a step on the source alone comes first
    for _ in range(6):
        trainer.step()
    del count[:]
    found = []
    for one in (trainer, trainer_of(changed(config, sdat=False), steps=7)):
        with monkeypatch.context() as patch:
            found.append(recorded(one, patch))
            assert all(math.isfinite(value) for value in one.step().values())
    assert len(count) == MOVES[method]
    assert found[0] == found[1]  # the same terms, phases and parts that learn
    again = resumed(trainer)
    assert trainer.step() == again.step()


class Alone(Method):
    """A method that minimises by itself."""

    terms = ()

    def update(self, step):
        step.minimize(step.source(step.forward()))


def test_a_method_that_minimises_by_itself_is_refused_in_one_line():
    METHODS.register("alone")(Alone)
    try:
        check_objective(RunConfig("a", "b", method="alone"))
        with pytest.raises(UserError, match=r"alone minimises them by itself, .* leave out sdat") as caught:
            check_objective(RunConfig("a", "b", method="alone", sdat=True))
        assert "\n" not in str(caught.value)
    finally:
        METHODS.forget("alone")


def test_it_is_part_of_a_config_only_where_it_is_on():
    plain, told = RunConfig("a", "b", method="dann"), []
    on = changed(plain, sdat=True)
    assert changed(plain, sdat=False, sdat_rho=0.05).hash() == plain.hash()
    assert len({plain.hash(), on.hash(), changed(on, sdat_rho=0.1).hash()}) == 3
    assert changed(plain, told.append, sdat_rho=0.1) == plain
    assert told == ["sdat_rho is not used: it is a setting of --sdat, which this run does not have."]
    assert (uses(plain, "sdat_rho"), uses(on, "sdat_rho")) == (False, True)
    assert on.objective == "ce + dann + sdat"
    assert changed(on, **SOURCE_ONLY).objective == "source-only"  # what a sweep compares with
    assert RunConfig(**read_toml(to_toml(changed(on, sdat_rho=0.1)), "here")) == changed(on, sdat_rho=0.1)
    for rho in (0.0, -1.0, math.inf):
        with pytest.raises(UserError, match="sdat_rho is"):
            changed(on, sdat_rho=rho)


def test_estimators_take_it(here):
    x = np.load("source.npz")
    target = np.load("target.npz")["x"]
    fits = [
        tsadapt.TSAClassifier("dann", steps=10, bottleneck=8, sdat=sdat, random_state=0, device="cpu").fit(
            x["x"], x["y"], X_target=target
        )
        for sdat in (None, 0.5, 0.5, 1.0)
    ]
    logits = [fit.decision_function(target) for fit in fits]
    assert np.array_equal(logits[1], logits[2])
    assert not np.array_equal(logits[0], logits[1])
    assert not np.array_equal(logits[1], logits[3])
    with pytest.raises(ValueError, match="'sdat' parameter"):
        tsadapt.TSAClassifier(sdat=0.0).fit(x["x"], x["y"], X_target=target)


def test_estimated_class_shares_are_those_of_a_plain_run(config):
    """The short training that estimates them is source-only as ever."""
    config = changed(config, class_prior="estimated")
    shares = [trainer_of(changed(config, sdat=sdat)).class_shares() for sdat in (False, True)]
    assert torch.equal(*shares)


def test_images_with_dropout_resume_exactly(here):
    rng = np.random.default_rng(0)
    for file in ("s", "t"):
        np.savez(f"{file}.npz", x=rng.integers(0, 256, (30, 16, 16), dtype=np.uint8), y=np.arange(30) % 3)
    config = run_config(
        "s.npz", "t.npz", method="dmrl", target_terms=("mi", "fixmatch"), steps=6, batch_size=6, sdat=True, device="cpu"
    )
    trainer = trainer_of(config, steps=2)
    again = resumed(trainer)
    for _ in range(3):
        assert trainer.step(describe=True) == again.step(describe=True)
    assert same(trainer.model, again.model.state_dict())


def test_a_run_without_the_source_takes_it(here):
    config = run_config("source.npz", "target.npz", bottleneck=8, steps=6, batch_size=12, device="cpu")
    train_run(config, here / "run", quiet=True)
    free = replace(config, source_free=str(here / "run"))
    _, plain = train_run(free, here / "plain", quiet=True)
    _, moved = train_run(replace(free, sdat=True, sdat_rho=2.0), here / "moved", quiet=True)
    assert plain["last"]["step"] == moved["last"]["step"] == 6
    weights = [RunFolder(here / name).model.weights.read_bytes() for name in ("plain", "moved")]
    assert weights[0] != weights[1]
