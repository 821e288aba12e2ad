"""A few labelled target rows: they measure, or are trained on and then measure nothing."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.configs import changed, run_config
from tests.photos import write_classes
from tests.runs.killing import Killed, kill_at, weights

import tsadapt
from tsadapt.adapt import adapt
from tsadapt.cli import main
from tsadapt.core import FeatureMemory
from tsadapt.errors import UserError
from tsadapt.objectives.base import METHODS
from tsadapt.report.collect import collect
from tsadapt.runs.fit import train_run
from tsadapt.runs.folder import RunFolder
from tsadapt.training.setup import make_task, make_trainer

FEW = {0: "ant", 1: "bee", 2: "cow", 30: "ant"}


@pytest.fixture
def few(here):
    """Labels of four rows of the target, which are right."""
    Path("few.csv").write_text("name,label\n" + "".join(f"{row},{name}\n" for row, name in FEW.items()))
    return {"target_labels": "few.csv", "use_target_labels": True}


def wrong(rows=range(40), name="ant"):
    """A file that calls many rows by one class."""
    Path("wrong.csv").write_text("".join(f"{row},{name}\n" for row in rows))
    return {"target_labels": "wrong.csv", "use_target_labels": True}


def test_labels_that_measure_change_no_bit(config, few):
    plain, _ = train_run(config, Path("plain"), quiet=True)
    measuring = changed(config, target_labels="few.csv")
    assert measuring.hash() == config.hash()
    measured, metrics = train_run(measuring, Path("measured"), quiet=True)
    assert weights(measured) == weights(plain)
    found = metrics["last"]["target_labels"]
    assert (found["rows"], found["used_in_training"]) == (4, False)
    assert found["accuracy"] == pytest.approx(1)
    assert found["low"] == pytest.approx(4 / (4 + 1.959964**2))  # Wilson of 4 of 4
    assert metrics["last"]["target"]["rows"] == 120
    # The same command with other labels measures again, and trains nothing.
    state = next(Path("measured/checkpoints").iterdir()).stat().st_mtime_ns
    Path("few.csv").write_text("0,bee\n1,cow\n2,ant\n")
    _, again = train_run(measuring, Path("measured"), quiet=True)
    assert again["last"]["target_labels"]["rows"] == 3
    assert next(Path("measured/checkpoints").iterdir()).stat().st_mtime_ns == state


def test_labels_that_are_used_are_trained_on_and_measure_nothing(config, few, capsys):
    using = changed(config, **few)
    assert using.hash() != config.hash()
    plain, before = train_run(config, Path("plain"), quiet=True)
    used, metrics = train_run(using, Path("used"), quiet=True)
    assert weights(used) != weights(plain)
    assert metrics["last"]["target_labels"] == {"rows": 4, "used_in_training": True}
    assert before["last"]["target"]["rows"] == 120
    assert metrics["last"]["target"]["rows"] == 116  # the rows trained on are no test
    assert "they measure nothing" in capsys.readouterr().err
    text = (used / "config.toml").read_text()
    assert "use_target_labels = true" in text
    assert "few.csv" in text
    assert RunFolder(used).config.objective == "tsa + mi + target labels"
    record = json.loads((used / "records.jsonl").read_text().splitlines()[0])
    assert record["target-labels"] > 0


def test_the_rows_that_are_measured_are_all_others(config, here):
    """All rows of one class called another: the network learns it, and that error is not in the accuracy."""
    with np.load("target.npz") as arrays:
        rows = np.flatnonzero(arrays["y"] == 2)[:-1]
    using = changed(config, **wrong(rows, "ant"), steps=150)
    _, metrics = train_run(using, Path("used"), quiet=True)
    scored = metrics["last"]["target"]
    assert scored["rows"] == 120 - len(rows)
    assert np.asarray(scored["confusion"]).sum(1).tolist() == [40, 40, 1]


def test_labels_that_change_are_another_run(config, few):
    using = changed(config, **few)
    train_run(using, Path("used"), quiet=True)
    Path("few.csv").write_text("0,bee\n")
    with pytest.raises(UserError, match="the target_labels changed"):
        train_run(using, Path("used"), quiet=True)


def test_rows_in_the_memory_count_under_the_given_labels(config, here):
    """Labels that no network would guess stay, whatever it predicts; other rows follow the predictions."""
    using = changed(config, **wrong(), steps=12)
    trainer = make_trainer(make_task(using))
    trainer.fill_memory()
    for _ in trainer.loop():
        memory = trainer.statistics.of("target", "memory", 0)
        assert isinstance(memory, FeatureMemory)
        assert (memory.labels[:40] == 0).all()
    assert len(set(memory.labels[40:].tolist())) > 1


@pytest.mark.parametrize("settings", [{"teacher": 0.9}, {"confidence_weights": True}])
def test_pseudo_labels_of_tsas_own_are_given_too(config, here, settings):
    using = changed(config, **wrong(), **settings, steps=6)
    trainer = make_trainer(make_task(using))
    trainer.fill_memory()
    for _ in trainer.loop():
        pass
    own = trainer.objective.source_term.pseudo_labels_of_rows[:40]
    assert set(own.tolist()) <= {0, 3}  # 3: not seen yet
    assert 0 in own


def test_the_term_is_the_cross_entropy_of_these_rows(config, few):
    """By hand: forward the four rows in the target's part of the batch, and take −log softmax at their labels."""
    using = changed(config, **few, method="dann")  # whose domains go one by one
    trainer = make_trainer(make_task(using))
    batch = trainer.batches.at(1)
    assert sorted(batch.y_l.tolist()) == [0, 0, 1, 2]
    out, _ = trainer.forward(batch, 0.0)
    logits = trainer.model.classify(trainer.model.features(torch.cat([batch.x_t, batch.x_l])))[0].logits[-4:]
    expected = -logits.log_softmax(1)[torch.arange(4), batch.y_l].mean()
    found = trainer.objective.source_and_target_terms(out)["target-labels"]
    torch.testing.assert_close(found, expected)
    assert len(out.target.features) == len(batch.x_t)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_takes_them(config, few, method):
    using = changed(config, **few, method=method, source_term="ce", target_terms=(), steps=3, network="mlp")
    _, metrics = train_run(using, Path("used"), quiet=True)
    logged = [json.loads(line) for line in Path("used/records.jsonl").read_text().splitlines()]
    assert any("target-labels" in record for record in logged)  # ETD begins with its potentials alone
    assert metrics["last"]["target"]["rows"] == 116


def test_a_term_weight_scales_them(config, few):
    none = changed(config, **few, term_weight={"target-labels": 0.0})
    train_run(none, Path("none"), quiet=True)
    assert "target-labels" not in json.loads(Path("none/records.jsonl").read_text().splitlines()[0])
    with pytest.raises(UserError, match="Unknown term 'target-labels'"):
        train_run(changed(config, term_weight={"target-labels": 1.0}), Path("plain"), quiet=True)


def test_killed_and_resumed_ends_in_the_same_bits(config, few, monkeypatch):
    using = changed(config, **few)
    whole, _ = train_run(using, Path("whole"), quiet=True)
    with monkeypatch.context() as patch:
        kill_at(patch, 17)
        with pytest.raises(Killed):
            train_run(using, Path("parts"), quiet=True)
    parts, _ = train_run(using, Path("parts"), quiet=True)
    assert weights(parts) == weights(whole)


def test_a_source_free_run_takes_them(config, few):
    first, _ = train_run(config, Path("first"), quiet=True, keep_memory=True)
    free = run_config("none", "target.npz", source_free=str(first), steps=12, batch_size=16, device="cpu", **few)
    _, metrics = train_run(free, Path("free"), quiet=True)
    assert metrics["last"]["target_labels"] == {"rows": 4, "used_in_training": True}
    assert metrics["last"]["target"]["rows"] == 116


def test_photographs_with_a_trained_backbone(trained):
    """The labelled images are a third role of the loader; one that cannot be read is left out."""
    write_classes(Path("few"))
    names = sorted(path.name for path in Path("new").iterdir())
    kind = sorted(path.name for path in Path("labelled").iterdir())[0]
    Path("few.csv").write_text(f"{names[0]},{kind}\n{names[1]},{kind}\n")
    using = changed(trained, target_labels="few.csv", use_target_labels=True)
    trainer = make_trainer(make_task(using))
    batch = trainer.batches.at(1)
    assert batch.x_l.shape == (2, *batch.x_s.shape[1:])
    assert batch.y_l.tolist() == [0, 0]
    plain = make_trainer(make_task(trained)).batches.at(1)
    assert torch.equal(plain.x_t, batch.x_t)
    assert torch.equal(plain.x_s, batch.x_s)
    assert plain.x_l is None
    _, metrics = train_run(using, Path("used"), quiet=True)
    assert metrics["last"]["target_labels"] == {"rows": 2, "used_in_training": True}


def test_from_python_with_labels_in_memory(here):
    with np.load("target.npz") as arrays:
        x, y = arrays["x"], arrays["classes"][arrays["y"]]
    given = [label if row < 6 else None for row, label in enumerate(y)]
    settings = {"steps": 10, "batch_size": 16, "bottleneck": 8, "device": "cpu"}
    plain = tsadapt.fit("source.npz", (x, y), out="plain", target_labels=given, **settings)
    assert plain.metrics["last"]["target_labels"]["rows"] == 6
    used = tsadapt.fit("source.npz", (x, y), out="used", target_labels=given, use_target_labels=True, **settings)
    assert used.metrics["last"]["target"]["rows"] == 114
    assert RunFolder(Path("used")).config.target_labels.startswith("memory:")
    codes = np.where(np.arange(120) < 6, np.arange(120) % 3, -1)
    with pytest.raises(UserError, match=r"target_labels, row 0: Unknown class '0'"):
        tsadapt.fit("source.npz", (x, y), out="codes", target_labels=codes, **settings)
    with pytest.raises(UserError, match="expected one label for each of 120 target rows"):
        tsadapt.fit("source.npz", (x, y), out="short", target_labels=given[:9], **settings)
    with pytest.raises(UserError, match="has no label"):
        tsadapt.fit("source.npz", (x, y), out="none", target_labels=[None] * 120, **settings)


FIT = ["fit", "source.npz", "target.npz", "--steps", "12", "--batch-size", "16", "--bottleneck", "8", "--quiet"]


def test_on_the_command_line(few, capsys):
    assert main([*FIT, "--target-labels", "few.csv", "--out", "m"]) == 0
    assert "on 4 rows, not trained on" in capsys.readouterr().out
    assert main([*FIT, "--target-labels", "few.csv", "--use-target-labels", "--out", "u"]) == 0
    assert "target labels: 4 rows, trained on, and left out of what is measured" in capsys.readouterr().out
    assert main(["evaluate", "u", "target.npz"]) == 0
    assert "was trained on labels of some target rows" in capsys.readouterr().err
    assert main([*FIT, "--out", "p"]) == 0
    assert main(["select", "p", "u"]) == 0
    assert "1 run trained on labels of target rows: this is no choice without labels" in capsys.readouterr().err
    page = collect([Path("u")])
    assert any("Trained on the labels of 4 target rows" in note for note in page.runs[0].notes)
    assert page.runs[0].measured.rows == 116
    assert page.runs[0].rows.truth is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*FIT, "--use-target-labels"], "add --target-labels FILE"),
        ([*FIT, "--use-target-labels", "--target-labels", "nowhere.csv"], "does not exist"),
        ([*FIT, "--target-labels", "few.csv", "--target-share", "0.5"], "leave out --target-share"),
        (["sweep", *FIT[1:], "--use-target-labels", "--target-labels", "few.csv"], "chooses without target labels"),
        (["sweep", *FIT[1:], "--grid", "use_target_labels=true"], "Unknown setting 'use_target_labels'"),
    ],
)
def test_refused_in_one_line(few, capsys, words, said):
    assert main([*words, "--out", "x"]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_all_rows_labelled_leaves_nothing_to_measure(config, here):
    using = changed(config, **wrong(range(120)), steps=2)
    with pytest.raises(UserError, match="nothing to measure with"):
        train_run(using, Path("used"), quiet=True)


def test_adapt_trains_every_candidate_on_them(few):
    settings = {"steps": 12, "batch_size": 16, "bottleneck": 8, "device": "cpu"}
    made = adapt("source.npz", "target.npz", out="r", portfolio=["mi"], **few, **settings)
    assert made.summary["target_labels"] == {"rows": 4, "used_in_training": True}
    assert made.summary["measured_accuracy"] is None
    assert all("target labels" in one["objective"] for one in made.summary["candidates"])
    assert "Trained on the labels of 4 target rows" in Path("r/report.html").read_text()
    plain = adapt("source.npz", "target.npz", out="m", portfolio=["mi"], target_labels="few.csv", **settings)
    assert plain.summary["target_labels"] == {"rows": 4, "used_in_training": False}
    assert plain.summary["measured_accuracy"]["rows"] == 4
