"""A compiled pass gives the numbers of the network as it is, leaves no trace in it, and says why it cannot be."""

from pathlib import Path

import pytest
import torch
from tests.configs import changed
from tests.runs.killing import Killed, kill_at, weights
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import config as inductor

from tsadapt.cli import main
from tsadapt.errors import UserError
from tsadapt.runs.fit import train_run
from tsadapt.training.compiled import compiled
from tsadapt.training.setup import make_task, make_trainer

WAYS = [
    {},
    {"precision": "bf16"},
    {"separate_bn": True, "target_batch_size": 9},
    {"method": "adda", "source_term": "ce", "sdat": True},
]


def steps(config, number=6):
    """Terms of some steps of a network with dropout, its state, and how many graphs were compiled for it."""
    trainer, before = make_trainer(make_task(config)), counters["stats"]["unique_graphs"]
    if isinstance(trainer.model.bottleneck, nn.Sequential):
        trainer.model.bottleneck.insert(0, nn.Dropout(0.2))
    trainer.fill_memory()
    terms = [trainer.step() for _ in range(number)]
    return terms, trainer.state()["model"], counters["stats"]["unique_graphs"] - before


def check_same(config):
    expected, state, none = steps(config)
    found, compiled_state, graphs = steps(changed(config, compile=True))
    assert none == 0
    assert 1 <= graphs <= 3
    tolerance = 2e-2 if config.precision == "bf16" else 1e-4
    for mine, theirs in zip(found, expected, strict=True):
        assert mine == {name: pytest.approx(value, rel=tolerance, abs=tolerance) for name, value in theirs.items()}
    assert {k: v.shape for k, v in compiled_state.items()} == {k: v.shape for k, v in state.items()}


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_terms_are_those_of_the_network_as_it_is(config, way):
    check_same(changed(config, **way))


def test_the_last_stages_of_a_backbone_are_compiled(frozen):
    check_same(changed(frozen, train_from="-1", views=2, precision="fp32", batch_size=6))


def test_a_compiled_run_resumes_to_the_same_bits_and_is_the_run_that_it_is_without(config, monkeypatch, capsys):
    by_code = changed(config, compile=True)
    assert by_code.hash() == config.hash()
    whole, metrics = train_run(by_code, Path("whole"))
    assert "compiling the network" in capsys.readouterr().err
    _, plain = train_run(config, Path("plain"), quiet=True)
    found, expected = (m["last"]["target"]["accuracy"] for m in (metrics, plain))
    assert found == pytest.approx(expected, abs=0.02)
    with monkeypatch.context() as patch:
        kill_at(patch, 17)
        with pytest.raises(Killed):
            train_run(by_code, Path("again"), quiet=True)
    train_run(by_code, Path("again"), quiet=True)
    assert "resumed at step 14" in capsys.readouterr().err
    assert weights(whole) == weights(Path("again"))
    train_run(config, Path("again"), quiet=True)
    assert "already done" in capsys.readouterr().err


def test_every_run_of_a_process_is_compiled():
    before = counters["stats"]["unique_graphs"]
    for _ in range(10):
        layer = nn.Linear(2, 2)
        torch.testing.assert_close(compiled(layer.forward)(torch.eye(2)), layer(torch.eye(2)))
    assert counters["stats"]["unique_graphs"] - before == 10


def test_without_a_compiler_one_line_says_so(config, monkeypatch, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler")
    words = ["fit", "source.npz", "target.npz", "--device", "cpu", "--out", "run", "--compile"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "--compile needs a C++ compiler, and no-such-compiler is not found" in said
    assert len(said.splitlines()) == 1
    assert not Path("run").exists()
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: False)
    monkeypatch.setattr("tsadapt.training.setup.pick_device", lambda name: torch.device("cuda"))
    with pytest.raises(UserError, match="Triton"):
        make_task(changed(config, compile=True))


def test_a_compiler_that_fails_is_one_line_too(config, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "code"))  # of no earlier run
    failing = inductor.patch({"cpp.cxx": (None, "/bin/false")})
    with failing, pytest.raises(UserError, match=r"This network cannot be compiled here: .*Leave out --compile"):
        train_run(changed(config, compile=True, bottleneck=9), Path("run"), quiet=True)


def test_help_names_it(capsys):
    with pytest.raises(SystemExit):
        main(["fit", "--help"])
    assert "--compile" in capsys.readouterr().out
