"""A trained run adapted to a new target without its source: what stays, what learns, and what is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.configs import changed, run_config
from tests.photos import QUICK, SEE, write_flat
from tests.runs.killing import Killed, kill_at, weights
from torch.nn import functional as F

import tsadapt
from tsadapt.cli import main
from tsadapt.core import FeatureMemory, transferable_cross_entropy
from tsadapt.errors import UserError
from tsadapt.runs.fit import train_run
from tsadapt.runs.folder import RunFolder
from tsadapt.runs.kept_memory import load_memory
from tsadapt.runs.model import load
from tsadapt.runs.source_free import start_from
from tsadapt.training.setup import make_task, make_trainer
from tsadapt.training.source_free import continued


@pytest.fixture
def trained(config):
    """A run that has kept its memory, and a new target; the source and the old target are gone."""
    train_run(config, Path("run"), quiet=True, keep_memory=True)
    shutil.rmtree("run/checkpoints")
    known = np.load("target.npz")
    x = 1.5 * known["x"] - 1.5
    np.savez("newer.npz", x=x, y=known["y"], classes=known["classes"])
    np.savez("unlabelled.npz", x=x)
    np.savez("shuffled.npz", x=x, y=np.random.default_rng(9).permutation(known["y"]), classes=known["classes"])
    for gone in ("source.npz", "target.npz"):
        Path(gone).unlink()
    return Path("run")


def free(target="newer.npz", **settings):
    base = {
        "source_free": "run",
        "steps": 24,
        "batch_size": 16,
        "log_every": 5,
        "checkpoint_every": 7,
        "device": "cpu",
        "lr": 0.05,
    }
    return run_config("none", target, **{**base, **settings})


def trainer_of(config):
    start = start_from(config.source_free)
    config = continued(config, start)
    trainer = make_trainer(make_task(config, start=start))
    trainer.fill_memory()
    return trainer


def state_of(trainer):
    return {k: v.clone() for k, v in trainer.model.state_dict().items()}


def moved(before, after):
    return {k for k in before if not torch.equal(before[k], after[k])}


def test_the_head_stays_and_the_extractor_learns(trained):
    trainer = trainer_of(free())
    before = state_of(trainer)
    assert all(torch.equal(v, load("run").network.state_dict()[k]) for k, v in before.items())
    for _ in range(5):
        said = trainer.step(describe=True)
        assert set(said) == {"shot", "loss", "lr", "pseudo_labelled"}
        assert np.isfinite(said["shot"])
    changed_parts = moved(before, state_of(trainer))
    assert {"bottleneck.0.weight", "bottleneck.1.weight", "bottleneck.1.running_mean"} <= changed_parts
    assert not [key for key in changed_parts if not key.startswith("bottleneck.")]


def test_a_run_like_any_other(trained, capsys):
    assert main(["evaluate", "run", "newer.npz"]) == 0
    known = np.load("newer.npz")
    before = (load("run").predict("newer.npz") == known["classes"][known["y"]]).mean()
    words = ["fit", "--source-free", "run", "newer.npz", "--steps", "80", "--batch-size", "32", "--lr", "0.02"]
    assert main([*words, "--out", "free"]) == 0
    said = capsys.readouterr()
    assert "run, without its source → " in said.err
    assert ", shot, 80 steps" in said.err
    assert "source source.npz" not in said.out
    metrics = RunFolder(Path("free")).metrics
    assert set(metrics["last"]) == {"step", "target"}
    assert metrics["last"]["target"]["accuracy"] >= max(before, 0.9)
    model = load("free")
    assert model.classes == ("ant", "bee", "cow")
    assert (model.predict("newer.npz") == known["classes"][known["y"]]).mean() == pytest.approx(
        metrics["last"]["target"]["accuracy"]
    )
    assert main([*words, "--out", "free"]) == 0
    assert "already done" in capsys.readouterr().err
    assert main(["fit", "--config", "free/config.toml", "--out", "free"]) == 0
    assert "already done" in capsys.readouterr().err
    # And one goes on from it.
    assert main(["fit", "--source-free", "free", "unlabelled.npz", "--steps", "9", "--quiet", "--out", "on"]) == 0
    assert RunFolder(Path("on")).manifest["source_share"] == RunFolder(Path("run")).manifest.get(
        "source_share", [pytest.approx(1 / 3)] * 3
    )


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"tsa": True},
        {"target_terms": ("fixmatch", "mi"), "method": "adabn", "confidence": 0.4},
        {"target_terms": ("mi",), "class_prior": "estimated", "precision": "bf16"},
    ],
    ids=str,
)
def test_killed_and_resumed_ends_with_the_same_bits(trained, change, monkeypatch, capsys):
    whole, _ = train_run(free(**change), Path("whole"), quiet=True)
    with monkeypatch.context() as patch:
        kill_at(patch, 17)
        with pytest.raises(Killed):
            train_run(free(**change), Path("again"), quiet=True)
    capsys.readouterr()
    again, _ = train_run(free(**change), Path("again"), quiet=True)
    assert "resumed at step 14" in capsys.readouterr().err
    assert weights(whole) == weights(again)
    for name in ("records.jsonl", "metrics.json"):
        assert (whole / name).read_bytes() == (again / name).read_bytes()


def test_target_labels_only_evaluate(trained):
    runs = [train_run(free(f"{name}.npz", candidates=3), Path(name), quiet=True) for name in LABELS]
    assert len({weights(folder) for folder, _ in runs}) == 1
    (_, known), (_, none), (_, wrong) = runs
    assert "oracle" not in none
    assert "accuracy" not in none["last"]["target"]
    assert {known["selected"]["step"], wrong["selected"]["step"]} == {none["selected"]["step"]}
    assert known["oracle"]["accuracy"] > wrong["oracle"]["accuracy"]
    assert "accuracy" in known["last"]["target"]


LABELS = ("newer", "unlabelled", "shuffled")


def test_tsa_on_the_class_means_of_the_memory(trained):
    """L_∞ of the means as labelled features; the head learns by it, and the means stay."""
    memory, _ = load_memory(RunFolder(trained))
    count, mean = memory.class_means()
    trainer = trainer_of(free(tsa=True, lambda0=0.8))
    assert trainer.objective.method.context.source_share.tolist() == pytest.approx((count / count.sum()).tolist())
    out, _ = trainer.forward(trainer.batches.at(1), 0.5)
    trainer.statistics.observe(out)
    weight, bias = trainer.model.head.weight, trainer.model.head.bias
    source, target = FeatureMemory(3, mean.shape[1], 3), trainer.statistics.of("target", "memory", 0)
    source.write(torch.arange(3), mean.float(), torch.arange(3))
    expected = transferable_cross_entropy(
        F.linear(mean.float(), weight, bias), torch.arange(3), weight, source, target, 0.4
    )
    terms = trainer.objective.source_and_target_terms(out)
    torch.testing.assert_close(terms["tsa"], expected)
    assert terms["tsa"] > 0
    before = state_of(trainer)
    for _ in range(4):
        said = trainer.step(describe=True)
    assert {"tsa", "mi", "lambda", "shift_norm"} <= set(said)
    assert {"heads.0.weight", "heads.0.bias", "bottleneck.0.weight"} <= moved(before, state_of(trainer))
    torch.testing.assert_close(trainer.statistics.of("source", "memory", 0).class_means()[1].float(), mean.float())
    # Without the mutual information the extractor has nothing to learn from, but the head has.
    alone = trainer_of(free(tsa=True, term_weight={"mi": 0.0}))
    before = state_of(alone)
    for _ in range(3):
        alone.step()
    parts = {key for key in moved(before, state_of(alone)) if "running" not in key and "tracked" not in key}
    assert parts == {"heads.0.weight", "heads.0.bias"}


def test_the_shares_of_the_source_without_a_memory(config):
    counts = [60, 40, 20]
    y = np.repeat([0, 1, 2], counts)
    x = 4 * np.eye(6)[y] + np.random.default_rng(0).normal(size=(120, 6))
    np.savez("source.npz", x=x, y=y, classes=np.array(["ant", "bee", "cow"]))
    train_run(changed(config, tsa=False, mi=False), Path("run"), quiet=True)
    assert not start_from("run").stand_in.remembered
    trainer = trainer_of(free("target.npz", target_terms=("mi",), class_prior="source"))
    assert trainer.objective.method.context.source_share.tolist() == pytest.approx([1 / 2, 1 / 3, 1 / 6])
    trainer.step(describe=True)
    with pytest.raises(UserError, match="mi needs the source's class means, and run has kept none"):
        trainer_of(free("target.npz", tsa=True))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"method": "dann"}, "dann needs the source's rows"),
        ({"method": "mcd"}, "mcd needs the source's rows"),
        ({"source_term": "isda"}, "isda needs the source's rows"),
        ({"holdout": 0.1}, "holdout is 0.1, but a source-free run has no rows of the source"),
        ({"head_steps": 5}, "head_steps is 5, but"),
        ({"bottleneck": 9}, "bottleneck is 9, but the network of .*run has 8, and stays"),
        ({"backbone": "resnet18"}, "backbone is resnet18, but the network of .*run has None"),
        ({"views": 2}, "only --train-from stores views"),
        ({"target": "wide.npz"}, "wide.npz has 7 features per row, expected 6"),
        ({"source_free": "nothing"}, "No run at .*nothing"),
        ({"source_free": "empty"}, "No trained model in .*empty"),
        ({"source_free": "run/model"}, "holds a model without its run"),
    ],
)
def test_what_is_refused(trained, change, said):
    Path("empty").mkdir()
    np.savez("wide.npz", x=np.zeros((9, 7)))
    with pytest.raises(UserError, match=said) as caught:
        train_run(free(**change), Path("free"), quiet=True)
    assert "\n" not in str(caught.value)
    assert not Path("free").exists()


def test_a_run_that_is_not_itself(trained, capsys):
    with pytest.raises(UserError, match="the run that is to be adapted"):
        train_run(free(), Path("run"), quiet=True, overwrite=True)
    train_run(free(steps=9), Path("free"), quiet=True)
    config = RunFolder(trained).config
    metrics = Path("run/metrics.json")
    done = metrics.read_bytes()
    metrics.unlink()
    with pytest.raises(UserError, match="not done yet"):
        train_run(free(steps=9), Path("free"), quiet=True)
    metrics.write_bytes(done)
    # Another run in its place is another start.
    network = load("run")
    with torch.no_grad():
        network.network.heads[0].bias += 1
    network.save("run/model")
    with pytest.raises(UserError, match="a run of other data: the run changed since it began"):
        train_run(free(steps=9), Path("free"), quiet=True)
    assert config.source.endswith("source.npz")
    for words in (["--source-free", "run", "a", "b"], ["--source-free", "run"]):
        assert main(["fit", *words]) == 2
    said = capsys.readouterr().err
    assert "give the TARGET alone" in said
    assert "fit needs a SOURCE and a TARGET" in said
    assert main(["sweep", "--source-free", "run", "newer.npz"]) == 2
    assert "use fit --source-free" in capsys.readouterr().err
    assert main(["augmented", "free"]) == 2


def test_a_network_that_is_nothing_but_its_head(here):
    train_run(run_config("source.npz", "target.npz", network="linear", steps=5, device="cpu"), Path("run"), quiet=True)
    with pytest.raises(UserError, match="nothing but its head"):
        train_run(free("target.npz"), Path("free"), quiet=True)


@pytest.mark.parametrize("method", ["jada", "mcd"])
def test_two_heads_stay_two(config, method):
    train_run(changed(config, method=method), Path("run"), quiet=True, keep_memory=True)
    trainer = trainer_of(free("target.npz", target_terms=("shot", "atdoc")))
    before = state_of(trainer)
    trainer.step()
    learned = {key for key in moved(before, state_of(trainer)) if "running" not in key and "tracked" not in key}
    assert learned
    assert all(key.startswith("bottleneck.") for key in learned)
    both = trainer_of(free("target.npz", tsa=True))
    for i, mean in enumerate(both.stand_in.means):
        torch.testing.assert_close(mean, load_memory(RunFolder(Path("run")), i)[0].class_means()[1].float())
    said = both.step(describe=True)
    assert np.isfinite(said["tsa"])
    _, metrics = train_run(free("target.npz"), Path("free"), quiet=True)
    assert metrics["last"]["target"]["rows"] == 120


def test_in_python(here):
    rng = np.random.default_rng(0)
    y = np.array(["cat", "dog", "fox"])[np.arange(120) % 3]
    x = 4 * np.eye(3)[np.arange(120) % 3] + rng.normal(size=(120, 3))
    tsadapt.fit((x, y), x + 1, tsa=True, steps=40, batch_size=16, out="run")
    newer = 2 * x - 3
    model = tsadapt.fit(source_free="run", target=newer, steps=60, batch_size=32, out="free")
    assert model.metrics["last"]["target"]["rows"] == 120
    assert (model.predict(newer) == y).mean() > 0.9
    assert (tsadapt.fit(source_free="run", target=newer, steps=60, batch_size=32, out="free").predict(newer) == y).any()
    for arguments in ({"target": newer}, {"source": (x, y), "source_free": "run", "target": newer}, {"source": (x, y)}):
        with pytest.raises(UserError, match="a source and a target, or source_free"):
            tsadapt.fit(**arguments)


def test_photographs_with_a_frozen_backbone_and_a_sweep_in_place_of_a_run(frozen, capsys):
    words = ["--grid", "beta=0.1", "--out", "swept", *SEE, *QUICK]
    assert main(["sweep", "labelled", "new", *words]) == 0
    shutil.rmtree("labelled")
    write_flat(Path("newer"), tint=150)
    assert main(["fit", "--source-free", "swept", "newer", "--steps", "8", "--batch-size", "6", "--out", "free"]) == 0
    capsys.readouterr()
    assert main(["predict", "free", "newer", "--out", "p.csv"]) == 0
    assert len(Path("p.csv").read_text().splitlines()) == 25
    assert load("free").preprocessing.frozen


@pytest.mark.parametrize("how", [{"freeze_backbone": False}, {"train_from": "blocks.3", "views": 2}], ids=str)
def test_photographs_with_a_backbone_that_is_trained(frozen, monkeypatch, how):
    train_run(changed(frozen, **how, precision="fp32"), Path("run"), quiet=True)
    shutil.rmtree("labelled")
    shutil.rmtree("cache", ignore_errors=True)
    write_flat(Path("newer"), tint=150)
    config = free("newer", batch_size=6, steps=9, checkpoint_every=4, workers=0, target_terms=("shot", "fixmatch"))
    config = changed(config, precision="fp32", confidence=0.3)
    trainer = trainer_of(config)
    before = state_of(trainer)
    trainer.step()
    learned = moved(before, state_of(trainer))
    assert any(key.startswith("backbone.") for key in learned)
    assert not [key for key in learned if key.startswith(("heads.", "scaling."))]
    whole, metrics = train_run(config, Path("whole"), quiet=True)
    assert metrics["last"]["target"]["rows"] == 24
    with monkeypatch.context() as patch:
        kill_at(patch, 6)
        with pytest.raises(Killed):
            train_run(config, Path("again"), quiet=True)
    again, _ = train_run(config, Path("again"), quiet=True)
    assert weights(whole) == weights(again)
    assert (whole / "records.jsonl").read_bytes() == (again / "records.jsonl").read_bytes()
    assert load(again).predict("newer").tolist() == load(whole).predict("newer").tolist()
    shares = json.loads((whole / "metrics.json").read_text())["last"]["target"]["predicted_share"]
    found = load(whole).predict("newer")
    for name, share in shares.items():
        assert (found == name).mean() == pytest.approx(share)
