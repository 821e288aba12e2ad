"""What every source term, target term and method must do, in every combination: a new one is tested by being there."""

from functools import partial

import numpy as np
import pytest
import torch
from tests.configs import changed, run_config
from tests.tasks import write_task

from tsadapt.config import RUN_SETTINGS, SHORTHANDS
from tsadapt.core import FeatureMemory, mutual_information_loss, transferable_cross_entropy
from tsadapt.errors import UserError
from tsadapt.objectives.base import METHODS, SOURCE_TERMS, TARGET_TERMS, Method, StatisticsRequest, TargetTerm
from tsadapt.objectives.objective import check_objective, full_settings
from tsadapt.runs.fit import train_run
from tsadapt.runs.folder import RunFolder
from tsadapt.settings import setting
from tsadapt.training.setup import make_task, make_trainer
from tsadapt.training.trainer import Trainer

NAMES = [*METHODS]
EVERY_TARGET = tuple(TARGET_TERMS)
TARGETS = [*dict.fromkeys(((), *((name,) for name in EVERY_TARGET), EVERY_TARGET))]
PAIRS = [(source, targets) for source in SOURCE_TERMS for targets in TARGETS]


def fits(source, name, targets=()):
    """Augmentation needs a head that is linear in the features, which some methods do not have."""
    return METHODS[name].linear or not (SOURCE_TERMS[source].linear or any(TARGET_TERMS[t].linear for t in targets))


def targets_for(name):
    """Every target term that goes with a method."""
    return tuple(target for target in EVERY_TARGET if fits("ce", name, (target,)))


def source_for(name):
    return "tsa" if fits("tsa", name) else "ce"


# Every method with every source term, and with every target term.
ALL = [
    (source, targets, name)
    for source, targets in PAIRS
    for name in NAMES
    if (source == "tsa" or targets in ((), EVERY_TARGET)) and fits(source, name, targets)
]
# Every method and every pair of terms at least once, where all combinations would take too long.
COVERING = [
    *dict.fromkeys(
        [*((source_for(name), targets_for(name), name) for name in NAMES), *((*pair, "dann") for pair in PAIRS)]
    )
]
TERMS = [(kind.kind, name, kind[name]) for kind in (SOURCE_TERMS, TARGET_TERMS, METHODS) for name in kind]


STAGES = {"pretraining": 0.125, "potentials_first": 0.125}
"""Methods in stages reach their last one by the third of eight steps."""


def titled(value):
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[1], tuple):
        return "/".join([value[0], *value[1], value[2]])
    return str(value)


every = partial(pytest.mark.parametrize, "objective", ids=titled)


@pytest.fixture
def base(here):
    return run_config(
        "source.npz", "target.npz", bottleneck=8, steps=8, batch_size=12, lr=0.05, device="cpu", log_every=3,
        checkpoint_every=3,
    )  # fmt: skip


SURE = {"fixmatch.confidence": 0.3, "fixmatch.fixmatch_weight": 0.2}
"""Of three classes one always has more than that: the term is at work from the first step on, and not too much."""


def of(base, objective, **more):
    source, targets, name = objective
    settings = STAGES | (SURE if "fixmatch" in targets else {})
    return changed(base, source_term=source, target_terms=targets, method=name, **settings, **more)


def training(config, steps=0) -> Trainer:
    made = make_trainer(make_task(config))
    made.fill_memory()
    for _ in range(steps):
        made.step()
    return made


def tensors(made: Trainer, method_only: bool = False) -> dict[str, torch.Tensor]:
    """The network's tensors, and those of the objective or of its method alone."""
    objective = made.objective.method if method_only else made.objective
    parts = {"model": made.model, "objective": objective}
    return {f"{part}.{k}": v.clone() for part, module in parts.items() for k, v in module.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def term_names(objective) -> set[str]:
    source, targets, name = objective
    return {source, *targets, *METHODS[name].terms}


@pytest.mark.parametrize(("kind", "name", "cls"), TERMS, ids=lambda value: value if isinstance(value, str) else "")
def test_it_says_what_it_is_and_its_settings_are_whole(kind, name, cls):
    assert (cls.__doc__ or "").partition("\n")[0].strip()
    assert "=" not in name
    assert "." not in name
    for one in cls.settings.values():
        assert one.help.endswith("."), one.name
        assert one.check(one.default) == one.default
        assert one.name not in {*RUN_SETTINGS, *SHORTHANDS}
        # A name that several terms share is one flag: it means the same in all of them.
        for _, _, other in TERMS:
            if one.name in other.settings:
                assert other.settings[one.name] == one


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@every(argvalues=ALL)
def test_a_step_runs_and_its_terms_are_finite(base, objective, precision):
    made = training(
        of(base, objective, precision=precision), steps=2 if "pretraining" in METHODS[objective[2]].settings else 0
    )
    said = made.step(describe=True)
    expected = term_names(objective)
    assert expected <= set(said)
    assert all(np.isfinite(value) for value in said.values() if isinstance(value, float))
    if len(expected) > 1:
        assert set(said["gradient_share"]) == expected
        assert all(0 <= share <= 1 for share in said["gradient_share"].values())
        if type(made.objective.method).update is Method.update:
            assert sum(said["gradient_share"].values()) == pytest.approx(1, abs=1e-3)
    if hasattr(made.objective.method, "discriminator"):
        assert 0 <= said["discriminator_accuracy"] <= 1
    assert made.with_target == any(term.needs_target for term in made.objective)
    if made.with_target:
        assert -2 <= said["batch_a_distance"] <= 2


@pytest.mark.parametrize("name", [name for name in NAMES if not METHODS[name].linear])
@pytest.mark.parametrize("source", [name for name in SOURCE_TERMS if SOURCE_TERMS[name].linear])
def test_augmentation_is_refused_where_the_head_is_not_linear(base, source, name):
    with pytest.raises(UserError, match=f"{source} augments .* of {name} are not linear in them"):
        make_task(of(base, (source, (), name)))


@every(argvalues=COVERING)
def test_every_term_moves_some_parameter(base, objective):
    """A loss that is dropped on the way cannot pass."""
    made = training(of(base, objective), steps=3)
    method = made.objective.method
    out = method.seen(made.forward(made.batches.at(4), 0.5)[0])
    terms = made.objective.source_and_target_terms(out)
    if type(method).update is Method.update:
        losses = method.losses(out)
        assert tuple(losses) == METHODS[objective[2]].terms
        terms |= losses
    parameters = [p for p in (*made.model.parameters(), *made.objective.parameters()) if p.requires_grad]
    for term, value in terms.items():
        grads = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        assert any(g is not None and bool(g.abs().sum() > 0) for g in grads), term
    with_all = tensors(training(of(base, objective), steps=4))
    for off in term_names(objective):
        if len(term_names(objective)) > 1:
            run = training(of(base, objective, term_weight={off: 0.0}))
            values = [run.step() for _ in range(4)]
            assert set(values[-1]) == term_names(objective) - {off}
            assert not same(with_all, tensors(run)), off


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("term", ["tsa", "sampled"])
@pytest.mark.parametrize("name", [name for name in NAMES if fits("tsa", name)])
def test_without_strength_and_mi_tsa_is_the_base_method(base, name, term, smoothing):
    """λ0 = 0 and β = 0: bit for bit, against a run that forwards the target too."""
    plain = changed(base, method=name, mi=True, beta=0.0, label_smoothing=smoothing)
    ends = [
        tensors(training(config, steps=5), method_only=True)
        for config in (plain, changed(plain, source_term=term, lambda0=0.0, label_smoothing=smoothing))
    ]
    assert same(*ends)
    if METHODS[name].needs_target and not smoothing:  # β = 0 adds nothing to a method that forwards the target anyway
        assert same(tensors(training(changed(base, method=name), steps=5), method_only=True), ends[0])


@pytest.mark.parametrize(
    ("target", "name"),
    [(t, name) for t in EVERY_TARGET for name in NAMES if METHODS[name].needs_target and fits("ce", name, (t,))],
)
def test_a_target_term_of_weight_zero_is_none(base, target, name):
    without = training(changed(base, method=name), steps=4)
    off = training(changed(base, method=name, target_terms=(target,), term_weight={target: 0.0}), steps=4)
    assert same(tensors(without, method_only=True), tensors(off, method_only=True))


@every(argvalues=COVERING)
def test_save_rebuild_load_go_on(base, objective):
    config = of(base, objective)
    whole = training(config, steps=3)
    torch.save(whole.state(), "state.pt")
    again = make_trainer(make_task(config))
    again.load(torch.load("state.pt", weights_only=True))
    for _ in range(4):
        assert whole.step(describe=True) == again.step(describe=True)
    assert same(tensors(whole), tensors(again))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@every(argvalues=COVERING)
def test_sharpness_aware_steps_are_finite_and_resume(base, objective, precision):
    """All stages of every objective with --sdat, saved between two steps."""
    config = of(base, objective, precision=precision, sdat=True)
    method = METHODS[config.method]
    if method.update is not Method.update and not method.descends:
        with pytest.raises(UserError, match="sdat"):
            training(config, steps=1)
        return
    whole = training(config, steps=3)
    torch.save(whole.state(), "state.pt")
    again = make_trainer(make_task(config))
    again.load(torch.load("state.pt", weights_only=True))
    for _ in range(2):
        said = whole.step(describe=True)
        assert said == again.step(describe=True)
        assert term_names(objective) <= set(said)
        assert all(np.isfinite(value) for value in said.values() if isinstance(value, float))
    assert same(tensors(whole), tensors(again))
    plain = training(changed(config, sdat=False), steps=5)
    assert not same(tensors(whole), tensors(plain))


@every(argvalues=COVERING)
def test_a_finished_run_predicts_and_shuffled_target_labels_change_nothing(base, here, objective):
    config = of(base, objective)
    _, metrics = train_run(config, here / "a", quiet=True)
    write_task(here, shuffle=True)
    _, shuffled = train_run(config, here / "b", quiet=True)
    write_task(here, target_labels=False)
    train_run(config, here / "c", quiet=True)
    assert len({RunFolder(here / run).model.weights.read_bytes() for run in "abc"}) == 1
    assert metrics["last"]["target"]["confusion"] != shuffled["last"]["target"]["confusion"]


def odd(case: str):
    """Targets and batches that go wrong elsewhere."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 6)), np.arange(40) % 3
    changes = {}
    if case == "one class in a batch":
        y = np.array([0] * 38 + [1, 2])
    if case == "a batch of two":
        changes = {"batch_size": 2}
    if case == "saturated":
        x = x * 1e4
    target = rng.normal(size=(40, 6)) if case != "saturated" else 1e4 * rng.normal(size=(40, 6))
    if case == "absent classes":
        target = np.tile(x[:1], (40, 1)) + 1e-3 * target
    np.savez("s.npz", x=x, y=y)
    np.savez("t.npz", x=target)
    return run_config("s.npz", "t.npz", bottleneck=4, steps=6, lr=0.01, device="cpu", **{"batch_size": 8, **changes})


@pytest.mark.parametrize("case", ["one class in a batch", "a batch of two", "absent classes", "saturated"])
@every(argvalues=COVERING)
def test_odd_batches_stay_finite(here, objective, case):
    made = training(of(odd(case), objective))
    for _ in range(6):
        said = made.step()
        assert all(np.isfinite(value) for value in said.values())
    made.state()  # refuses weights that are not finite


@every(argvalues=COVERING)
def test_digit_networks_and_a_wide_target(here, objective):
    """Images, with the digit networks' own heads, and other sizes of the two batches."""
    rng = np.random.default_rng(0)
    for file in ("s", "t"):
        np.savez(f"{file}.npz", x=rng.integers(0, 256, (30, 16, 16), dtype=np.uint8), y=np.arange(30) % 3)
    config = run_config("s.npz", "t.npz", steps=3, batch_size=6, target_batch_size=4, device="cpu")
    said = training(of(config, objective)).step(describe=True)
    assert all(np.isfinite(value) for value in said.values() if isinstance(value, float))


def test_two_heads_have_their_own_memories_shared_pseudo_labels_and_mi_of_the_average(base):
    made = training(changed(base, method="jada", tsa=True))
    out, _ = made.forward(made.batches.at(1), 0.5)
    made.statistics.observe(out)
    settings = full_settings(made.config)
    p = torch.stack([head.target.logits.softmax(1) for head in out.heads]).mean(0)
    terms = made.objective.source_and_target_terms(out)
    torch.testing.assert_close(terms["mi"], settings["mi"]["beta"] * mutual_information_loss(p.log()))
    sources, targets = ([made.statistics.of(d, "memory", i) for i in range(2)] for d in ("source", "target"))
    assert torch.equal(targets[0].labels, targets[1].labels)
    assert not torch.equal(targets[0].features, targets[1].features)
    rows = out.target.index
    combined = torch.stack([head.target.logits for head in out.heads]).sum(0).argmax(1)
    assert torch.equal(targets[0].labels[rows], combined)
    for memory, head in zip(targets, out.heads, strict=True):
        torch.testing.assert_close(memory.features[rows], head.target.features)
    strength = 0.5 * settings["tsa"]["lambda0"]
    with torch.no_grad():
        each = [
            transferable_cross_entropy(h.source.logits, out.source.labels, h.weight, s, t, strength)
            for h, s, t in zip(out.heads, sources, targets, strict=True)
        ]
    torch.testing.assert_close(terms["tsa"].detach(), sum(each))


def test_weights_of_terms(base):
    config = changed(base, method="bsp", mi=True, term_weight={"domain": 0.5, "mi": 2, "spectral": 0})
    a, b = training(changed(config, term_weight={})), training(config)
    plain, weighted = a.step(), b.step()
    assert weighted["domain"] == pytest.approx(0.5 * plain["domain"])
    assert weighted["mi"] == pytest.approx(2 * plain["mi"])
    assert "spectral" not in weighted
    with pytest.raises(UserError, match=r"Unknown term 'domian'.*'domain'.*bsp"):
        make_task(changed(config, term_weight={"domian": 1}))
    with pytest.raises(UserError, match="term_weight"):
        changed(config, term_weight={"domain": "much"})
    with pytest.raises(UserError, match="every term off"):
        make_task(changed(base, term_weight={"ce": 0}))


class Alternating(Method):
    """Three phases in the manner of MCD, on two heads."""

    terms = ("disagreement",)
    heads = 2
    phases = ("heads", "features")

    def update(self, step):
        out = step.forward()
        step.minimize(step.source(out))
        before = [p.detach().clone() for p in step.extractor.parameters()]
        heads = [p.detach().clone() for p in step.heads.parameters()]
        out = step.forward()
        step.minimize({**step.source(out), "disagreement": -self.apart(out)}, only=[step.heads], phase="heads")
        assert all(torch.equal(a, b) for a, b in zip(before, step.extractor.parameters(), strict=True))
        assert not all(torch.equal(a, b) for a, b in zip(heads, step.heads.parameters(), strict=True))
        heads = [p.detach().clone() for p in step.heads.parameters()]
        for _ in range(2):
            step.minimize({"disagreement": self.apart(step.forward())}, only=[step.extractor], phase="features")
        assert all(torch.equal(a, b) for a, b in zip(heads, step.heads.parameters(), strict=True))
        assert not all(torch.equal(a, b) for a, b in zip(before, step.extractor.parameters(), strict=True))

    @staticmethod
    def apart(out):
        p, q = (head.target.logits.softmax(1) for head in out.heads)
        return (p - q).abs().mean()


class Centred(TargetTerm):
    """Target features near the means of their pseudo-classes."""

    pull: float = setting(0.5, "How much.", at_least=0)

    def statistics(self):
        return [StatisticsRequest("target"), StatisticsRequest("source", "iterative")]

    def forward(self, out):
        self.seen = [out.statistics("target", "memory", i) for i in range(len(out.heads))]
        means = self.seen[0].class_means()[1].to(out.target.features)
        labels = out.target.logits.argmax(1)
        return self.pull * (out.heads[0].target.features - means[labels]).square().mean()


@pytest.fixture
def alternating():
    METHODS.register("alternating")(Alternating)
    yield "alternating"
    METHODS.forget("alternating")


@pytest.fixture
def centred():
    TARGET_TERMS.register("centred")(Centred)
    yield "centred"
    TARGET_TERMS.forget("centred")


def test_frozen_parts_of_a_phase_stay_and_statistics_advance_once(base, alternating, monkeypatch):
    made = training(changed(base, method=alternating, tsa=True))
    seen = []
    observe = made.statistics.observe
    monkeypatch.setattr(made.statistics, "observe", lambda out: (seen.append(out), observe(out)))
    values = made.step(describe=True)
    assert {"tsa", "mi", "disagreement"} <= set(values)
    assert len(seen) == 1
    made.step()
    assert len(seen) == 2


def test_a_phase_has_its_own_momentum_and_it_is_resumed(base, alternating):
    """The buffers of a phase hold what only that phase did, and without them a resumed run goes elsewhere."""
    config = changed(base, method=alternating, tsa=True)
    whole = training(config, steps=3)
    assert set(whole.optimizers) == {"", "heads", "features"}
    moved = {phase: len(optimizer.state) for phase, optimizer in whole.optimizers.items()}
    heads, extractor = (len([*part.parameters()]) for part in (whole.heads, whole.extractor))
    assert moved == {"": heads + extractor, "heads": heads, "features": extractor}
    torch.save(whole.state(), "state.pt")
    ends = []
    for forget in (False, True):
        again = make_trainer(make_task(config))
        state = torch.load("state.pt", weights_only=True)
        if forget:
            state["optimizers"]["heads"]["state"] = {}
        again.load(state)
        for _ in range(3):
            again.step()
        ends.append(tensors(again))
    for _ in range(3):
        whole.step()
    assert same(tensors(whole), ends[0])
    assert not same(tensors(whole), ends[1])


def test_terms_that_ask_for_the_same_statistics_share_them_written_once(base, centred, monkeypatch):
    made = training(changed(base, tsa=True, target_terms=("mi", centred), pull=2.0))
    assert full_settings(made.config)["centred"] == {"pull": 2.0}
    assert set(made.statistics.kept) == {"source-memory", "target-memory", "source-iterative"}
    writes = []
    write = FeatureMemory.write
    monkeypatch.setattr(FeatureMemory, "write", lambda self, *rows: (writes.append(id(self)), write(self, *rows)))
    values = made.step()
    assert set(values) == {"tsa", "mi", "centred"}
    memories = {domain: made.statistics.of(domain, "memory", 0) for domain in ("source", "target")}
    assert sorted(writes) == sorted(map(id, memories.values()))
    term = made.objective.target_terms[1]
    assert isinstance(term, Centred)
    assert term.seen[0] is memories["target"]
    # TSA needs the covariance of the target, and gets it whoever else asks for the means alone.
    alone = training(changed(base, target_terms=(centred,)))
    assert alone.statistics.of("target", "memory", 0).second is None
    assert memories["target"].second is not None


def test_terms_of_one_name_cannot_be_told_apart(base, centred):
    METHODS.register("centred")(Alternating)
    try:
        with pytest.raises(UserError, match="'centred'"):
            changed(base, method="centred", target_terms=("centred",))
    finally:
        METHODS.forget("centred")
    with pytest.raises(UserError, match="centred, centred"):
        changed(base, target_terms=("centred", "centred"))


class Clashing(TargetTerm):
    """A term called as one of DANN's."""

    def forward(self, out):
        return out.target.logits.sum()


def test_two_terms_of_one_name_are_refused():
    TARGET_TERMS.register("domain")(Clashing)
    try:
        with pytest.raises(UserError, match="Two terms of the objective are called domain"):
            check_objective(run_config("a", "b", method="dann", target_terms=("domain",)))
    finally:
        TARGET_TERMS.forget("domain")
