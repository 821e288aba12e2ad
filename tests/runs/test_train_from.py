"""The end of a backbone trained on stored activations: the same bits after a kill, and predictions from images."""

import csv
import json
from pathlib import Path

import pytest
import torch
from tests.configs import changed
from tests.photos import QUICK, SEE, TINY
from tests.runs.killing import Killed, kill_at, weights

from tsadapt.cli import main
from tsadapt.errors import UserError
from tsadapt.models.backbones import make_backbone
from tsadapt.models.stages import find_stage
from tsadapt.runs.fit import train_run
from tsadapt.runs.folder import RunFolder
from tsadapt.runs.model import load
from tsadapt.training import setup
from tsadapt.training.setup import make_task, make_trainer
from tsadapt.training.trainer import Trainer

STAGE = "blocks.3"


@pytest.fixture
def staged(frozen):
    return changed(frozen, train_from=STAGE, views=2, precision="fp32")


def test_only_the_end_is_trained(staged):
    trainer = make_trainer(make_task(staged))
    before = {k: v.clone() for k, v in trainer.model.state_dict().items()}
    trainer.fill_memory()
    for _ in range(3):
        trainer.step()
    moved = {k for k, v in trainer.model.state_dict().items() if not torch.equal(v, before[k])}
    assert not [key for key in moved if key.startswith("scaling.")]
    assert any(key.startswith(f"backbone.body.{STAGE}.") and key.endswith("conv_pw.weight") for key in moved)
    assert any(key.startswith("backbone.body.") and key.endswith("running_mean") for key in moved)
    assert "bottleneck.0.weight" in moved


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_killed_and_resumed(staged, monkeypatch, precision):
    config = changed(staged, precision=precision, candidates=2)
    train_run(config, Path("whole"), quiet=True)
    with monkeypatch.context() as patch:
        kill_at(patch, 8)
        with pytest.raises(Killed):
            train_run(config, Path("again"), quiet=True)
    train_run(config, Path("again"), quiet=True)
    assert weights(Path("whole")) == weights(Path("again"))
    assert Path("whole/records.jsonl").read_bytes() == Path("again/records.jsonl").read_bytes()


def test_two_stored_views_killed_and_resumed(staged, monkeypatch):
    config = changed(staged, tsa=False, target_terms=("fixmatch", "mi"), confidence=0.3, views=3)
    train_run(config, Path("whole"), quiet=True)
    with monkeypatch.context() as patch:
        kill_at(patch, 8)
        with pytest.raises(Killed):
            train_run(config, Path("again"), quiet=True)
    train_run(config, Path("again"), quiet=True)
    assert weights(Path("whole")) == weights(Path("again"))
    assert Path("whole/records.jsonl").read_bytes() == Path("again/records.jsonl").read_bytes()
    with pytest.raises(UserError, match="fixmatch compares two views of an image, but one is stored: add --views 4"):
        make_task(changed(config, views=1))


def test_views_change_training_and_their_labels_do_not_matter(staged):
    train_run(staged, Path("two"), quiet=True)
    train_run(changed(staged, views=1), Path("one"), quiet=True)
    assert weights(Path("two")) != weights(Path("one"))
    Path("labels").mkdir()
    for i, path in enumerate(sorted(Path("new").iterdir())):  # the same rows, in class folders
        folder = Path("labels") / ("ant", "bee")[i % 2]
        folder.mkdir(exist_ok=True)
        (folder / path.name).write_bytes(path.read_bytes())
    train_run(changed(staged, target="labels"), Path("labelled-target"), quiet=True)
    assert weights(Path("two")) == weights(Path("labelled-target"))


def test_predictions_from_images_are_those_of_the_run(staged, capsys):
    folder, _ = train_run(changed(staged, holdout=0.25), Path("run"), quiet=True)
    model = load("run")
    assert model.preprocessing.backbone.train_from == STAGE
    said = RunFolder(folder).metrics["last"]["target"]["predicted_share"]
    found = model.predict("new")
    for name, share in said.items():
        assert (found == name).mean() == pytest.approx(share)
    assert main(["predict", "run", "new", "--out", "p.csv"]) == 0
    assert [row["class"] for row in csv.DictReader(Path("p.csv").read_text().splitlines())] == found.tolist()
    assert main(["evaluate", "run", "labelled"]) == 0
    capsys.readouterr()
    adapted = model.adapt_bn("new")
    changed_layers = [
        k for k, v in adapted.network.state_dict().items() if not torch.equal(v, model.network.state_dict()[k])
    ]
    assert changed_layers
    assert not [key for key in changed_layers if key.startswith("scaling.")]


def test_adabn_and_methods_with_separate_passes(staged):
    for method in ("adabn", "dann", "jada"):
        _, metrics = train_run(changed(staged, method=method, source_term="ce", mi=False), Path(method), quiet=True)
        assert metrics["last"]["target"]["rows"] == 24


def test_the_command(frozen, capsys):
    arguments = ["fit", "labelled", "new", *SEE, *QUICK[:-1], "--tsa", "--out", "run"]
    assert main([*arguments, "--train-from", "-2", "--views", "2"]) == 0
    said = capsys.readouterr().err
    assert "activations of labelled: 24 images × 3 views" in said
    stage = find_stage(make_backbone(TINY, "none", 32), "-2")
    assert f"{TINY} (trained from {stage}) + mlp" in said
    assert main([*arguments, "--train-from", "-2", "--views", "2"]) == 0
    assert "already done" in capsys.readouterr().err
    assert main([*arguments, "--train-from", "-1", "--views", "2"]) == 2
    assert "train_from" in capsys.readouterr().err
    assert main(["list", "backbones", "--stages", TINY]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].startswith("--train-from")
    assert [row.split()[0] for row in rows if "or -2" in row] == [stage]
    assert main(["list", "networks", "--stages", "resnet18"]) == 2


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"train_from": STAGE, "freeze_backbone": True}, "leave out --freeze-backbone"),
        ({"train_from": STAGE, "freeze_backbone": False}, "leave out --no-freeze-backbone"),
        ({"train_from": "nowhere"}, "Unknown stage 'nowhere'"),
        ({"train_from": STAGE, "ten_crop": True}, "leave out --ten-crop"),
        ({"train_from": STAGE, "augment": "center-crop"}, "add --views"),
        ({"views": 4}, "only --train-from stores views"),
    ],
)
def test_what_does_not_go_together(frozen, settings, why):
    with pytest.raises(UserError, match=why):
        make_task(changed(frozen, **settings))


def test_feature_vectors_have_no_stages(config):
    assert make_task(config).config.precision == "fp32"
    with pytest.raises(UserError, match="train_from is for photographs"):
        make_task(changed(config, train_from="-1"))


def test_precision_is_what_the_processor_is_good_at(frozen, monkeypatch):
    for fast, expected in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(setup, "has_fast_bf16", lambda device, fast=fast: fast)
        assert make_task(changed(frozen, train_from=STAGE)).config.precision == expected
        assert make_task(frozen).config.precision == "fp32"
    named = make_task(frozen).config
    assert named.hash() == changed(named, precision=None).hash()
    assert json.dumps(named.precision) == '"fp32"'


@pytest.mark.parametrize("settings", [{"train_from": STAGE, "views": 2}, {"freeze_backbone": False}])
def test_the_head_first_leaves_the_backbone_as_it_is(frozen, monkeypatch, settings):
    config = changed(frozen, **settings, head_steps=15, precision="fp32", method="dann")
    at_start = []
    fill = Trainer.fill_memory

    def watched(self):
        at_start.append({k: v.clone() for k, v in (*self.model.state_dict().items(), *_named(self.objective.method))})
        fill(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "fill_memory", watched)
        train_run(config, Path("first"), quiet=True)
        train_run(changed(config, head_steps=0), Path("plain"), quiet=True)
    assert len(at_start) == 3  # of the head alone, then of the whole
    _, first, plain = at_start
    moved = {key for key in plain if not torch.equal(first[key], plain[key])}
    assert {"bottleneck.0.weight", "heads.0.weight"} <= moved
    assert any(key.startswith("discriminator.") for key in moved)
    assert not [key for key in moved if key.startswith(("scaling.", "backbone."))]
    with monkeypatch.context() as patch:
        kill_at(patch, 8)
        with pytest.raises(Killed):
            train_run(config, Path("again"), quiet=True)
    train_run(config, Path("again"), quiet=True)
    assert weights(Path("first")) == weights(Path("again"))


def _named(module):
    return [(key, value) for key, value in module.state_dict().items()]


def test_a_frozen_backbone_waits_for_nothing(frozen):
    for settings in ({}, {"freeze_backbone": True}):
        with pytest.raises(UserError, match="head_steps is 5"):
            make_task(changed(frozen, head_steps=5, **settings))
