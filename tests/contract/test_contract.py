"""What every method must do, with every source term, with and without MI; a new one is tested by being registered."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.runs.conftest import write_task

from tsadapt.config import RunConfig
from tsadapt.core import mutual_information_loss, transferable_cross_entropy
from tsadapt.errors import UserError
from tsadapt.objectives.methods import METHODS, Method
from tsadapt.runs.fit import fit, make_training
from tsadapt.training.setup import make_task
from tsadapt.training.trainer import Training

NAMES = [*METHODS]
TERMS = [("ce", False), ("ce", True), ("isda", False), ("isda", True), ("tsa", False), ("tsa", True)]


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    return RunConfig(
        "source.npz", "target.npz", bottleneck=8, steps=8, batch_size=12, lr=0.05, device="cpu", log_every=3,
        checkpoint_every=3,
    )  # fmt: skip


def training(config: RunConfig) -> Training:
    made = make_training(make_task(config))
    made.fill_memory()
    return made


def tensors(made: Training) -> dict[str, torch.Tensor]:
    state = made.state()
    return {f"{part}.{k}": v.clone() for part in ("model", "method") for k, v in state[part].items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("term", TERMS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_a_step_runs_and_its_terms_are_finite(base, name, term, precision):
    made = training(replace(base, method=name, source_term=term[0], mi=term[1], precision=precision))
    said = made.step(describe=True)
    expected = {term[0], *(["mi"] if term[1] else []), *METHODS[name].terms}
    assert expected <= set(said)
    assert all(np.isfinite(value) for value in said.values() if isinstance(value, float))
    if len(expected) > 1:
        assert set(said["gradient_share"]) == expected
        assert sum(said["gradient_share"].values()) == pytest.approx(1, abs=1e-3)
    if "domain" in METHODS[name].terms:
        assert 0 <= said["discriminator_accuracy"] <= 1
    if made.with_target:
        assert -2 <= said["batch_a_distance"] <= 2


@pytest.mark.parametrize("name", [n for n in NAMES if METHODS[n].terms])
def test_every_declared_term_moves_some_parameter(base, name):
    """A transfer loss that is dropped on the way cannot pass."""
    made = training(replace(base, method=name))
    for _ in range(3):
        made.step()
    out = made.forward(made.batches.at(4), 0.5)
    terms = made.method.losses(out)
    assert tuple(terms) == METHODS[name].terms
    parameters = [*made.model.parameters(), *made.method.parameters()]
    for term, value in terms.items():
        grads = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        assert any(g is not None and bool(g.abs().sum() > 0) for g in grads), term
    weights = dict.fromkeys(terms, 0.0)
    ends = {}
    for off in ("none", *terms):
        weight = () if off == "none" else (f"{off}=0",)
        run = training(replace(base, method=name, term_weight=weight))
        values = [run.step() for _ in range(4)]
        assert (off in values[-1]) == (off == "none" and off in weights)
        ends[off] = tensors(run)
    assert not any(same(ends["none"], ends[off]) for off in terms)


@pytest.mark.parametrize("name", NAMES)
def test_without_strength_and_mi_tsa_is_the_base_method(base, name):
    """λ0 = 0 and β = 0: bit for bit, against a run that forwards the target too."""
    plain = replace(base, method=name, mi=True, beta=0.0)
    ends = []
    for config in (plain, replace(plain, source_term="tsa", lambda0=0.0)):
        made = training(config)
        for _ in range(5):
            made.step()
        ends.append(tensors(made))
    assert same(*ends)
    if METHODS[name].needs_target:  # β = 0 adds nothing to a method that forwards the target anyway
        made = training(replace(base, method=name))
        for _ in range(5):
            made.step()
        assert same(tensors(made), ends[0])


@pytest.mark.parametrize("term", [("ce", False), ("tsa", True)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_save_rebuild_load_go_on(base, name, term):
    config = replace(base, method=name, source_term=term[0], mi=term[1])
    whole = training(config)
    for _ in range(3):
        whole.step()
    torch.save(whole.state(), "state.pt")
    again = make_training(make_task(config))
    again.load(torch.load("state.pt", weights_only=True))
    for _ in range(4):
        assert whole.step(describe=True) == again.step(describe=True)
    assert same(tensors(whole), tensors(again))


@pytest.mark.parametrize("name", NAMES)
def test_a_finished_run_predicts_and_shuffled_target_labels_change_nothing(base, name):
    config = replace(base, method=name, source_term="tsa", mi=True)
    _, metrics = fit(config, Path("a"), quiet=True)
    write_task(Path(), shuffle=True)
    _, shuffled = fit(config, Path("b"), quiet=True)
    write_task(Path(), target_labels=False)
    fit(config, Path("c"), quiet=True)
    weights = {(Path(run) / "model" / "model.safetensors").read_bytes() for run in "abc"}
    assert len(weights) == 1
    assert metrics["last"]["target"]["accuracy"] != shuffled["last"]["target"]["accuracy"]


def odd(name: str) -> RunConfig:
    """Targets and batches that go wrong elsewhere."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 6)), np.arange(40) % 3
    changes = {}
    if name == "one class in a batch":
        y = np.array([0] * 38 + [1, 2])
    if name == "a batch of two":
        changes = {"batch_size": 2}
    if name == "saturated":
        x = x * 1e4
    target = rng.normal(size=(40, 6)) if name != "saturated" else 1e4 * rng.normal(size=(40, 6))
    if name == "absent classes":
        target = np.tile(x[:1], (40, 1)) + 1e-3 * target
    np.savez("s.npz", x=x, y=y)
    np.savez("t.npz", x=target)
    config = RunConfig("s.npz", "t.npz", source_term="tsa", mi=True, bottleneck=4, steps=6, lr=0.01, device="cpu")
    return replace(config, **{"batch_size": 8, **changes})


@pytest.mark.parametrize("case", ["one class in a batch", "a batch of two", "absent classes", "saturated"])
@pytest.mark.parametrize("name", NAMES)
def test_odd_batches_stay_finite(base, name, case):
    made = training(replace(odd(case), method=name))
    for _ in range(6):
        said = made.step()
        assert all(np.isfinite(value) for value in said.values())
    made.state()  # refuses weights that are not finite


@pytest.mark.parametrize("name", NAMES)
def test_digit_networks_and_a_wide_target(base, name):
    """Images, with the digit networks' own heads, and other sizes of the two batches."""
    rng = np.random.default_rng(0)
    for file in ("s", "t"):
        np.savez(f"{file}.npz", x=rng.integers(0, 256, (30, 16, 16), dtype=np.uint8), y=np.arange(30) % 3)
    config = RunConfig(
        "s.npz", "t.npz", method=name, source_term="tsa", mi=True, steps=3, batch_size=6, target_batch_size=4,
        device="cpu",
    )  # fmt: skip
    made = training(config)
    said = made.step(describe=True)
    assert all(np.isfinite(value) for value in said.values() if isinstance(value, float))


def test_two_heads_have_their_own_memories_shared_pseudo_labels_and_mi_of_the_average(base):
    made = training(replace(base, method="jada", source_term="tsa", mi=True))
    out = made.forward(made.batches.at(1), 0.5)
    made.source_term.observe(out)
    p = torch.stack([head.target.logits.softmax(1) for head in out.heads]).mean(0)
    expected = made.config.beta * mutual_information_loss(p.log())
    torch.testing.assert_close(made.source(out)["mi"], expected)
    memories = made.source_term.target
    assert len(memories) == 2
    assert torch.equal(memories[0].labels, memories[1].labels)
    assert not torch.equal(memories[0].features, memories[1].features)
    rows = out.target.index
    combined = torch.stack([head.target.logits for head in out.heads]).sum(0).argmax(1)
    assert torch.equal(memories[0].labels[rows], combined)
    for memory, head in zip(memories, out.heads, strict=True):
        torch.testing.assert_close(memory.features[rows], head.target.features)
    with torch.no_grad():
        each = [
            transferable_cross_entropy(h.source.logits, out.source.labels, h.weight, s, t, 0.5 * made.config.lambda0)
            for h, s, t in zip(out.heads, made.source_term.source, memories, strict=True)
        ]
    torch.testing.assert_close(made.source(out)["tsa"].detach(), sum(each))


def test_weights_of_terms(base):
    config = replace(base, method="bsp", mi=True, term_weight=("domain=0.5", "mi=2", "spectral=0"))
    a, b = training(replace(config, term_weight=())), training(config)
    plain, weighted = a.step(), b.step()
    assert weighted["domain"] == pytest.approx(0.5 * plain["domain"])
    assert weighted["mi"] == pytest.approx(2 * plain["mi"])
    assert "spectral" not in weighted
    with pytest.raises(UserError, match=r"Unknown term 'domian': with method bsp there are ce, mi, domain, spectral\."):
        make_task(replace(config, term_weight=("domian=1",)))
    with pytest.raises(UserError, match="expected NAME=NUMBER"):
        replace(config, term_weight=("domain",))
    with pytest.raises(UserError, match="every term off"):
        make_task(replace(base, term_weight=("ce=0",)))


class Alternating(Method):
    """Three phases in the manner of MCD, on the two heads of JADA."""

    terms = ("domain", "disagreement")
    heads = 2

    def update(self, step):
        out = step.forward()
        step.minimize(step.source(out))
        before = [p.detach().clone() for p in step.extractor.parameters()]
        heads = [p.detach().clone() for p in step.heads.parameters()]
        out = step.forward()
        step.minimize({**step.source(out), "disagreement": -self.apart(out)}, only=[step.heads])
        assert all(torch.equal(a, b) for a, b in zip(before, step.extractor.parameters(), strict=True))
        assert not all(torch.equal(a, b) for a, b in zip(heads, step.heads.parameters(), strict=True))
        heads = [p.detach().clone() for p in step.heads.parameters()]
        for _ in range(2):
            step.minimize({"disagreement": self.apart(step.forward())}, only=[step.extractor])
        assert all(torch.equal(a, b) for a, b in zip(heads, step.heads.parameters(), strict=True))
        assert not all(torch.equal(a, b) for a, b in zip(before, step.extractor.parameters(), strict=True))

    @staticmethod
    def apart(out):
        p, q = (head.target.logits.softmax(1) for head in out.heads)
        return (p - q).abs().mean()


def test_frozen_parts_of_a_phase_stay_and_memories_advance_once(base, monkeypatch):
    METHODS.register("alternating")(Alternating)
    try:
        config = replace(base, method="alternating", source_term="tsa", mi=True)
        made = training(config)
        seen = []
        observe = made.source_term.observe
        monkeypatch.setattr(made.source_term, "observe", lambda out: (seen.append(1), observe(out)))
        values = made.step(describe=True)
        assert {"tsa", "mi", "disagreement"} <= set(values)
        assert len(seen) == 1
        made.step()
        assert len(seen) == 2
    finally:
        del METHODS._things["alternating"]
