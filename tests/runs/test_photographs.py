"""From folders of images to predictions: with a frozen backbone, and with one that is trained."""

import csv
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.configs import changed
from tests.photos import CLASSES, QUICK, SEE, TINY, truncate, write_classes
from tests.runs.killing import Killed, kill_at, weights

from tsadapt.cli import main
from tsadapt.data.open import open_dataset
from tsadapt.data.transforms import Framing
from tsadapt.errors import UserError
from tsadapt.models.backbones import make_backbone
from tsadapt.runs.fit import train_run
from tsadapt.runs.model import load
from tsadapt.training.setup import make_task, make_trainer
from tsadapt.training.trainer import Trainer


def test_three_commands_and_no_code(frozen, capsys):
    assert main(["doctor", "labelled", "new"]) == 0
    assert main(["fit", "labelled", "new", *SEE, *QUICK, "--tsa", "--out", "run"]) == 0
    captured = capsys.readouterr()
    assert "frozen, the default on a CPU" in captured.err
    assert "no labels; predicted most" in captured.out
    assert main(["predict", "run", "new", "--out", "p.csv"]) == 0
    rows = [*csv.DictReader(Path("p.csv").read_text().splitlines())]
    assert [row["row"] for row in rows] == sorted(os.listdir("new"))
    assert {row["class"] for row in rows} <= set(CLASSES)
    assert {row["error"] for row in rows} == {""}
    assert main(["evaluate", "run", "labelled"]) == 0
    assert "accuracy" in capsys.readouterr().out


def test_training_trains_every_layer_from_the_first_step(trained):
    task = make_task(changed(trained, source_term="ce", mi=False))
    trainer = make_trainer(task)
    assert all(module.training for module in trainer.model.modules())
    before = {k: v.clone() for k, v in trainer.model.state_dict().items()}
    trainer.step()
    moved = [k for k, v in trainer.model.state_dict().items() if not torch.equal(v, before[k])]
    assert "backbone.body.conv_stem.weight" in moved
    assert "backbone.body.bn1.running_mean" in moved


def test_a_frozen_run_killed_and_resumed(frozen, monkeypatch):
    train_run(frozen, Path("whole"), quiet=True)
    with monkeypatch.context() as patch:
        kill_at(patch, 8)
        with pytest.raises(Killed):
            train_run(frozen, Path("again"), quiet=True)
    train_run(frozen, Path("again"), quiet=True)
    assert weights(Path("whole")) == weights(Path("again"))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_trained_backbone_killed_and_resumed(trained, monkeypatch, workers):
    whole, metrics = train_run(trained, Path("whole"), quiet=True)
    assert metrics["last"]["source"]["rows"] == 24
    with monkeypatch.context() as patch:
        kill_at(patch, 8)
        with pytest.raises(Killed):
            train_run(changed(trained, workers=workers), Path("again"), quiet=True)
    again, _ = train_run(changed(trained, workers=workers), Path("again"), quiet=True)
    assert weights(whole) == weights(again)
    assert (whole / "records.jsonl").read_bytes() == (again / "records.jsonl").read_bytes()


@pytest.mark.parametrize("workers", [0, 1])
def test_two_views_of_an_image_killed_and_resumed(trained, monkeypatch, workers):
    config = changed(trained, tsa=False, target_terms=("fixmatch",), confidence=0.3, workers=workers)
    whole, _ = train_run(changed(config, workers=0), Path("whole"), quiet=True)
    said = [json.loads(line) for line in (whole / "records.jsonl").read_text().splitlines()]
    assert all(0 <= line["confident_share"] <= 1 and np.isfinite(line["fixmatch"]) for line in said)
    assert said[0]["fixmatch"] > 0
    with monkeypatch.context() as patch:
        kill_at(patch, 8)
        with pytest.raises(Killed):
            train_run(config, Path("again"), quiet=True)
    again, _ = train_run(config, Path("again"), quiet=True)
    assert weights(whole) == weights(again)
    assert (whole / "records.jsonl").read_bytes() == (again / "records.jsonl").read_bytes()
    assert load(again).predict("new").shape == (24,)


def test_a_trained_model_predicts_and_averages_ten_crops(trained, capsys):
    train_run(trained, Path("one"), quiet=True)
    train_run(changed(trained, ten_crop=True), Path("ten"), quiet=True)
    assert weights(Path("one")) == weights(Path("ten"))
    said = []
    for out in ("one", "ten"):
        capsys.readouterr()
        assert main(["predict", out, "new"]) == 0
        said.append(capsys.readouterr().out.splitlines())
        assert len(said[-1]) == 25
    assert said[0] != said[1]
    assert main(["predict", "one", "labelled/nothing"]) == 2


@pytest.mark.parametrize("freeze", [True, False])
def test_labels_of_the_target_change_no_bit(frozen, freeze):
    lines = [f"new/{name}" for name in sorted(os.listdir("new"))]
    true = [CLASSES[int(Path(line).name[0])] for line in lines]
    texts = {
        "none.txt": lines,
        "true.txt": [f"{line} {label}" for line, label in zip(lines, true, strict=True)],
        "shuffled.txt": [f"{line} {label}" for line, label in zip(lines, true[5:] + true[:5], strict=True)],
    }
    runs = []
    for name, text in texts.items():
        Path(name).write_text("\n".join(text))
        out, metrics = train_run(
            changed(frozen, target=name, freeze_backbone=freeze), Path(name).with_suffix(""), quiet=True
        )
        runs.append((out, metrics))
    assert len({weights(out) for out, _ in runs}) == 1
    assert "accuracy" not in runs[0][1]["last"]["target"]
    assert all("accuracy" in metrics["last"]["target"] for _, metrics in runs[1:])


@pytest.mark.parametrize("freeze", [True, False])
def test_an_unreadable_image_is_named_and_passed_over(frozen, freeze, capsys):
    truncate(Path("new/1-03.png"))
    truncate(Path("labelled/cow/02.png"))
    out, metrics = train_run(changed(frozen, freeze_backbone=freeze), Path("run"), quiet=True)
    said = capsys.readouterr().err
    assert "cow/02.png" in said
    assert "1-03.png" in said
    assert "truncated" in said
    assert metrics["last"]["target"]["rows"] == 23
    assert main(["predict", str(out), "new", "--out", "p.csv", "--probabilities"]) == 0
    assert "1 image cannot be read; the CSV says which" in capsys.readouterr().err
    rows = {row["row"]: row for row in csv.DictReader(Path("p.csv").read_text().splitlines())}
    assert len(rows) == 24
    assert rows["1-03.png"]["class"] == ""
    assert "truncated" in rows["1-03.png"]["error"]
    assert rows["1-04.png"]["class"] in CLASSES
    assert main(["evaluate", str(out), "labelled"]) == 0
    assert "1 of 24 images cannot be read" in capsys.readouterr().err
    truncated = Path("new/1-03.png").read_bytes()
    for path in Path("new").iterdir():
        path.write_bytes(truncated)
    assert main(["predict", str(out), "new"]) == 2
    assert "None of the 24 images" in capsys.readouterr().err


@pytest.mark.parametrize("workers", [0, 1])
def test_files_that_are_truncated_in_the_third_epoch_do_not_end_a_run(trained, workers, monkeypatch, capsys):
    made, lost = Trainer.step, sorted(Path("new").iterdir())[::4]

    def step(self, describe=False):
        if self.at == 9:  # 24 rows of each domain, 6 in a batch: four steps an epoch
            for path in (*lost, Path("labelled/cow/02.png")):
                truncate(path)
        return made(self, describe)

    monkeypatch.setattr(Trainer, "step", step)
    _, metrics = train_run(changed(trained, steps=24, workers=workers), Path("run"), quiet=True)
    said = capsys.readouterr().err
    assert all(said.count(f"new: {path.name} (image file is truncated") == 1 for path in lost)
    assert "cow/02.png" in said
    assert metrics["last"]["step"] == 24
    assert metrics["last"]["target"]["rows"] == 24 - len(lost)


def test_the_protocols_of_training_and_of_frozen_features(trained, monkeypatch):
    """Office-31 and Office-Home: both sides to 256, a random 224; VisDA-2017: its centre; frozen: as on ImageNet."""
    monkeypatch.setenv("TSADAPT_DATA", os.getcwd())
    write_classes(Path("visda/train"))
    write_classes(Path("visda/validation"), tint=90)
    for config, augment in ((trained, "random-crop"), (changed(trained, source="visda:synthetic"), "center-crop")):
        task = make_task(changed(config, image_size=224))
        assert task.preprocessing.framing == Framing(224, 256, keep_aspect=False, interpolation="bilinear")
        assert task.config.augment == augment
        image = torch.arange(3 * 40 * 30).remainder(251).to(torch.uint8).view(3, 40, 30)
        torch.manual_seed(0)
        different = {tuple(task.views().train(image).flatten().tolist()) for _ in range(6)}
        assert len(different) == (2 if augment == "center-crop" else 6)
    frozen = make_task(changed(trained, freeze_backbone=True, image_size=None))
    assert frozen.preprocessing.framing.keep_aspect
    assert frozen.preprocessing.framing.size == frozen.preprocessing.backbone.size


def test_small_networks_take_files_and_backbones_take_arrays(frozen):
    _, metrics = train_run(
        changed(frozen, network="small-16", backbone=None, weights=None, image_size=None), Path("a"), quiet=True
    )
    assert metrics["last"]["target"]["rows"] == 24
    rng = np.random.default_rng(0)
    for name in ("s", "t"):
        np.savez(f"{name}.npz", x=rng.integers(0, 256, (20, 20, 20, 3), dtype=np.uint8), y=np.arange(20) % 3)
    train_run(changed(frozen, source="s.npz", target="t.npz"), Path("b"), quiet=True)
    train_run(changed(frozen, source="s.npz", target="new", freeze_backbone=False), Path("c"), quiet=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "new"}, "has no labels. Expected class folders"),
        ({"source": "nowhere"}, "nowhere does not exist"),
        ({"source": "labelled/ant"}, "has no labels"),
        ({"source": "new", "target": "labelled"}, "Did you swap source and target"),
        ({"source": ".", "target": "labelled"}, "Did you mean a subfolder as the source"),
        ({"backbone": "mobilenet_v2"}, "Did you mean 'torchvision:mobilenet_v2'"),
        ({"backbone": "resnet5o"}, "Unknown backbone 'resnet5o'"),
        ({"weights": "nowhere.pth"}, "nowhere.pth"),
        ({"ten_crop": True}, "ten crops need a backbone that is trained"),
        ({"network": "lenet"}, "backbone is for photographs .* the network lenet"),
        ({"source": "x.npz", "target": "x.npz"}, "backbone is for photographs"),
        ({"source": "x.npz", "backbone": None}, "feature vectors and the target images"),
        ({"workers": -1}, "workers is -1"),
    ],
)
def test_mistakes_are_explained_and_leave_nothing(frozen, change, message):
    np.savez("x.npz", x=np.zeros((9, 2)), y=np.arange(9) % 3)
    with pytest.raises(UserError, match=message):
        train_run(changed(frozen, **change), Path("out"), quiet=True)
    assert not Path("out").exists()


def test_settings_and_data_that_do_nothing_are_noted(frozen):
    told = []
    make_task(
        changed(frozen, told.append, source_term="ce", mi=False, lambda0=0.5, beta=0.2, target="labelled"), told.append
    )
    assert any("lambda0 is not used" in note and "tsa" in note for note in told)
    assert any("beta is not used" in note and "mi" in note for note in told)
    notes = " ".join(told)
    assert "Source and target are the same data" in notes


def test_folders_that_are_no_classes_are_no_labels(frozen):
    write_classes(Path("by-day"), classes=("monday", "tuesday"), tint=70)
    told = []
    task = make_task(changed(frozen, target="by-day"), told.append)
    assert task.target.test.y is None
    assert any("no class in common" in note and "monday, tuesday" in note for note in told)


def test_a_place_that_is_taken_is_refused_before_any_work(frozen):
    train_run(frozen, Path("a"), quiet=True)
    shutil.rmtree("cache")
    with pytest.raises(UserError, match=r"another config: tsa\.lambda0"):
        train_run(changed(frozen, lambda0=0.5), Path("a"), quiet=True)
    assert not Path("cache").exists()


def test_other_data_or_weights_are_another_run(frozen):
    train_run(frozen, Path("a"), quiet=True)
    shutil.rmtree("cache")
    train_run(frozen, Path("a"), quiet=True)  # the same data, computed again
    os.remove("new/0-00.png")
    with pytest.raises(UserError, match="the target changed since it began"):
        train_run(frozen, Path("a"), quiet=True)
    torch.manual_seed(3)
    for name in ("w.pth", "v.pth"):
        torch.save(make_backbone(TINY, "none").module.state_dict(), name)
    train_run(changed(frozen, weights="w.pth"), Path("b"), quiet=True)
    os.replace("v.pth", "w.pth")
    with pytest.raises(UserError, match="the backbone changed since it began"):
        train_run(changed(frozen, weights="w.pth"), Path("b"), quiet=True)


def test_doctor_lists_and_exit_status(frozen, capsys):
    truncate(Path("new/1-03.png"))
    (Path("labelled/ant/again.png")).write_bytes(Path("labelled/ant/00.png").read_bytes())
    assert main(["doctor", "labelled", "new", "--fix-list", "mended", "--out", "d.json"]) == 1
    out = capsys.readouterr().out
    assert "error: 1 of 24 images of new cannot be read: 1-03.png (image file is truncated" in out
    assert "1 error, 1 warning" in out
    assert {f["code"] for f in json.loads(Path("d.json").read_text())} == {"unreadable", "duplicates"}
    assert main(["doctor", "mended/source.txt", "mended/target.txt"]) == 0
    assert len(open_dataset("mended/target.txt").train) == 23
    assert main(["fit", "mended/source.txt", "mended/target.txt", *SEE, *QUICK, "--out", "run"]) == 0
    write_classes(Path("deep/images"))
    capsys.readouterr()
    assert main(["doctor", "deep", "new"]) == 1
    assert "Did you mean deep/images?" in capsys.readouterr().out
    assert main(["doctor", "labelled"]) == 1  # a single domain will do
    np.savez("x.npz", x=np.zeros((9, 2)), y=np.arange(9) % 3)
    assert main(["doctor", "x.npz", "--fix-list", "mended"]) == 2
    assert "cannot be written as a list file" in capsys.readouterr().err
    assert main(["doctor", "labelled", "--workers", "-1"]) == 2
    assert main(["list", "backbones", "mobilenetv2"]) == 0
    assert "mobilenetv2_100" in capsys.readouterr().out.split()


@pytest.mark.parametrize("freeze", [True, False])
def test_target_images_dealt_to_other_class_folders_change_no_bit(frozen, freeze):
    names = sorted(os.listdir("new"))
    for k, folder in enumerate(("true", "dealt")):
        for i, name in enumerate(names):
            home = Path(folder, CLASSES[(int(name[0]) + k * i) % 3])
            home.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path("new", name), home)
    targets = ("new", "true", "dealt")
    runs = [train_run(changed(frozen, target=t, freeze_backbone=freeze), Path(f"run-{t}"), quiet=True) for t in targets]
    assert len({weights(out) for out, _ in runs}) == 1
    confusions = [metrics["last"]["target"]["accuracy"] for _, metrics in runs[1:]]
    assert confusions[0] != confusions[1]


ESCAPE = "\x1b]0;title\x07\r"


def test_names_that_would_move_the_cursor_are_shown_escaped(frozen, capfd):
    os.rename("labelled/ant", f"labelled/=ant{ESCAPE}")
    os.rename("new/0-00.png", f"new/-{ESCAPE}\n.png")
    Path(f"new/{ESCAPE}.txt").touch()
    truncate(Path("new/1-03.png"))
    os.rename("new/1-03.png", f"new/bad{ESCAPE}.png")
    shutil.copytree("labelled", f"other{ESCAPE}")
    assert main(["doctor", "labelled", "new"]) == 1
    assert main(["fit", "labelled", "new", *SEE, *QUICK, "--out", "run"]) == 0
    assert main(["evaluate", "run", f"other{ESCAPE}"]) == 0
    assert main(["features", f"new/bad{ESCAPE}.png", "--out", "f.npz", *SEE]) == 2
    assert main(["fit", "labelled", f"nowhere{ESCAPE}", "--out", "r"]) == 2
    captured = capfd.readouterr()
    assert not {c for c in captured.out + captured.err if not c.isprintable()} - {"\n"}
    assert "bad\\x1b]0;title\\x07\\r.png (image file is truncated" in captured.out
    assert "=ant\\x1b]0;title\\x07\\r" in captured.out
    assert main(["predict", "run", "new", "--out", "p.csv"]) == 0
    text = Path("p.csv").read_bytes().decode()
    assert "\r" not in text
    rows = [*csv.DictReader(text.splitlines(keepends=True))]
    assert len(rows) == 24
    assert f"'-{ESCAPE}\n.png".replace("\r", "\\r") in {row["row"] for row in rows}
    assert {row["class"] for row in rows} <= {f"'=ant{ESCAPE[:-1]}\\r", "bee", "cow", ""}


def test_the_lists_of_doctor_give_back_any_file_name(frozen, capsys):
    os.rename("labelled/cow", 'labelled/a "cow".png\n')
    for old, new in (("0-00", "two\nlines"), ("0-01", " \udcff"), ("0-02", "# x.jpg 3"), ("0-03", '"')):
        os.rename(f"new/{old}.png", f"new/{new}.png")
    truncate(Path("new/1-03.png"))
    assert main(["doctor", "labelled", "new", "--fix-list", "mended", "--out", "d.json"]) == 1
    for role, folder in (("source", "labelled"), ("target", "new")):
        listed, whole = open_dataset(f"mended/{role}.txt").train, open_dataset(folder).train
        assert listed.x.paths != whole.x.paths
        files = [os.path.realpath(path) for path in listed.x.paths]
        assert files == [path for path in whole.x.paths if not path.endswith("1-03.png")]
        assert (listed.notes, listed.classes) == ((), whole.classes)


def test_what_is_no_file_is_named_and_never_opened(frozen, capsys):
    os.mkfifo("new/pipe.png")
    os.mkfifo("pipe.png")
    os.mkfifo("pipe.csv")
    Path("circle.npz").symlink_to("circle.npz")
    assert main(["fit", "labelled", "new", *SEE, *QUICK, "--out", "run"]) == 0
    note = "new: ignored 1 path without a readable file: pipe.png (a pipe)."
    assert f"note: {note}" in capsys.readouterr().err
    for words in (["predict", "run", "new"], ["features", "new", *SEE, "--out", "f.npz"]):
        assert main(words) == 0
        assert f"note: {note}" in capsys.readouterr().err, words
    with pytest.warns(UserWarning, match=re.escape(note)):
        load("run", device="cpu").predict("new")
    for given, what in (("pipe.png", "a pipe"), ("pipe.csv", "a pipe"), ("circle.npz", "a link in a circle")):
        assert main(["fit", "labelled", given, "--out", "r"]) == 2
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 1
        assert said[0].startswith(f"tsadapt: {given} is {what}. Expected one of: ")
        assert main(["doctor", "labelled", given]) == 1
        assert f"error: {given} is {what}." in capsys.readouterr().out
