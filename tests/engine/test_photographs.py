"""From folders of images to predictions: with a frozen backbone, and with one that is trained."""

import csv
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.engine.test_run import Killed, kill_at, weights
from tests.photos import CLASSES, truncate, write_classes, write_flat

from tsadapt.cli import main
from tsadapt.config import RunConfig
from tsadapt.data.images import ImageFiles
from tsadapt.data.open import open_dataset
from tsadapt.data.transforms import Framing, evaluation_transform
from tsadapt.engine import features, run
from tsadapt.engine.features import extract
from tsadapt.engine.run import fit
from tsadapt.engine.task import make_task
from tsadapt.errors import UserError
from tsadapt.models.backbones import make_backbone

TINY = "test_efficientnet"
FRAMING = Framing(32, 36)
SHORT = {"steps": 12, "batch_size": 6, "bottleneck": 8, "lr": 0.05, "log_every": 4, "checkpoint_every": 5}
SEE = ["--backbone", TINY, "--weights", "none", "--image-size", "32"]
QUICK = ["--steps", "12", "--batch-size", "6", "--bottleneck", "8", "--quiet"]


@pytest.fixture
def frozen(tmp_path, monkeypatch):
    """A TSA run from class folders to a flat folder, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path / "cache"))
    write_classes(tmp_path / "labelled")
    write_flat(tmp_path / "new")
    see = {"backbone": TINY, "weights": "none", "image_size": 32, "device": "cpu", "workers": 0}
    return RunConfig("labelled", "new", source_term="tsa", mi=True, **see, **SHORT)


@pytest.fixture
def trained(frozen):
    return replace(frozen, freeze_backbone=False)


def test_three_commands_and_no_code(frozen, capsys):
    assert main(["doctor", "labelled", "new"]) == 0
    assert main(["fit", "labelled", "new", *SEE, *QUICK, "--tsa", "--out", "run"]) == 0
    captured = capsys.readouterr()
    assert "frozen, which is the default on a CPU" in captured.err
    assert "no labels; predicted most" in captured.out
    assert main(["predict", "run", "new", "--out", "p.csv"]) == 0
    rows = [*csv.DictReader(Path("p.csv").read_text().splitlines())]
    assert [row["row"] for row in rows] == sorted(os.listdir("new"))
    assert {row["class"] for row in rows} <= set(CLASSES)
    assert {row["error"] for row in rows} == {""}
    assert main(["evaluate", "run", "labelled"]) == 0
    assert "accuracy" in capsys.readouterr().out


def test_features_are_computed_once_and_resumed(frozen, monkeypatch):
    monkeypatch.setattr(features, "PART", 5)
    backbone = make_backbone(TINY, "none", 32)
    images, device = open_dataset("labelled").train.x, torch.device("cpu")

    def computed(framing=FRAMING, by=backbone):
        return extract(images, by, framing, device, 0, quiet=True)

    whole = computed()
    assert (whole.computed, tuple(whole.x.shape), whole.rows) == (24, (24, backbone.dim), [*range(24)])
    assert computed().computed == 0
    assert torch.equal(computed().x, whole.x)
    parts = sorted(Path("cache/features").rglob("*.npz"))
    assert len(parts) == 5
    parts[1].unlink()
    parts[3].write_bytes(b"damaged")
    again = computed()
    assert again.computed == 10
    assert torch.equal(again.x, whole.x)
    assert computed(framing=Framing(32, 40)).computed == 24
    torch.manual_seed(5)
    assert computed(by=make_backbone(TINY, "none", 32)).computed == 24
    plain = backbone.module.eval()
    mean, std = (255 * torch.tensor(v)[:, None, None] for v in (backbone.mean, backbone.std))
    one = (evaluation_transform(Framing(32, 36))(images.decode(7, 72)) - mean) / std
    with torch.no_grad():
        torch.testing.assert_close(whole.x[7], plain(one[None])[0], rtol=1e-3, atol=1e-4)


def test_a_kill_among_the_features_costs_one_part(frozen, monkeypatch):
    monkeypatch.setattr(features, "PART", 5)
    made = features._compute
    calls = []

    def dying(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return made(*arguments)

    monkeypatch.setattr(features, "_compute", dying)
    with pytest.raises(KeyboardInterrupt):
        fit(frozen, Path("a"), quiet=True)
    assert len([*Path("cache/features").rglob("*.npz")]) == 2
    fit(frozen, Path("a"), quiet=True)
    assert len(calls) == 3 + 3 + 5


def test_training_trains_every_layer_from_the_first_step(trained):
    task = make_task(replace(trained, source_term="ce", mi=False))
    training = run._make_training(task)
    assert all(module.training for module in training.model.modules())
    before = {k: v.clone() for k, v in training.model.state_dict().items()}
    training.step()
    moved = [k for k, v in training.model.state_dict().items() if not torch.equal(v, before[k])]
    assert "backbone.body.conv_stem.weight" in moved
    assert "backbone.body.bn1.running_mean" in moved


def test_features_of_weights_in_a_file_train_to_the_same_bits(frozen, capsys):
    torch.manual_seed(3)
    torch.save(make_backbone(TINY, "none").module.state_dict(), "w.pth")
    see = ["--backbone", TINY, "--weights", "w.pth", "--image-size", "32"]
    assert main(["fit", "labelled", "new", *see, *QUICK, "--tsa", "--out", "direct"]) == 0
    for name in ("labelled", "new"):
        assert main(["features", name, *see, "--out", f"{name}.npz", "--quiet"]) == 0
    assert sorted(np.load("labelled.npz")) == ["classes", "names", "x", "y"]
    assert main(["fit", "labelled.npz", "new.npz", *QUICK, "--tsa", "--out", "by-npz"]) == 0
    assert weights(Path("direct")) == weights(Path("by-npz"))
    capsys.readouterr()
    assert main(["predict", "direct", "new"]) == 0
    by_images = capsys.readouterr().out.splitlines()
    assert main(["predict", "direct", "new.npz"]) == 0  # the model takes its features as well
    by_features = capsys.readouterr().out.splitlines()
    assert by_images[0] == by_features[0] + ",error"
    assert [line.rstrip(",") for line in by_images[1:]] == by_features[1:]
    os.rename("w.pth", "gone.pth")  # the run has all it needs
    assert main(["predict", "direct", "labelled"]) == 0


def test_a_frozen_run_killed_and_resumed(frozen, monkeypatch):
    fit(frozen, Path("whole"), quiet=True)
    with monkeypatch.context() as patch:
        kill_at(patch, 8)
        with pytest.raises(Killed):
            fit(frozen, Path("again"), quiet=True)
    fit(frozen, Path("again"), quiet=True)
    assert weights(Path("whole")) == weights(Path("again"))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_trained_backbone_killed_and_resumed(trained, monkeypatch, workers):
    whole, metrics = fit(trained, Path("whole"), quiet=True)
    assert metrics["last"]["source"]["rows"] == 24
    with monkeypatch.context() as patch:
        kill_at(patch, 8)
        with pytest.raises(Killed):
            fit(replace(trained, workers=workers), Path("again"), quiet=True)
    again, _ = fit(replace(trained, workers=workers), Path("again"), quiet=True)
    assert weights(whole) == weights(again)
    assert (whole / "records.jsonl").read_bytes() == (again / "records.jsonl").read_bytes()


def test_a_trained_model_predicts_and_averages_ten_crops(trained, capsys):
    fit(trained, Path("one"), quiet=True)
    fit(replace(trained, ten_crop=True), Path("ten"), quiet=True)
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
        out, metrics = fit(replace(frozen, target=name, freeze_backbone=freeze), Path(name).with_suffix(""), quiet=True)
        runs.append((out, metrics))
    assert len({weights(out) for out, _ in runs}) == 1
    assert "accuracy" not in runs[0][1]["last"]["target"]
    assert all("accuracy" in metrics["last"]["target"] for _, metrics in runs[1:])


@pytest.mark.parametrize("freeze", [True, False])
def test_an_unreadable_image_is_named_and_passed_over(frozen, freeze, capsys):
    truncate(Path("new/1-03.png"))
    truncate(Path("labelled/cow/02.png"))
    out, metrics = fit(replace(frozen, freeze_backbone=freeze), Path("run"), quiet=True)
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


def test_the_protocols_of_training_and_of_frozen_features(trained, monkeypatch):
    """Office-31 and Office-Home: both sides to 256, a random 224; VisDA-2017: its centre; frozen: as on ImageNet."""
    monkeypatch.setenv("TSADAPT_DATA", os.getcwd())
    write_classes(Path("visda/train"))
    write_classes(Path("visda/validation"), tint=90)
    for config, augment in ((trained, "random-crop"), (replace(trained, source="visda:synthetic"), "center-crop")):
        task = make_task(replace(config, image_size=224))
        assert task.eyes.framing == Framing(224, 256, keep_aspect=False, interpolation="bilinear")
        assert task.config.augment == augment
        image = torch.arange(3 * 40 * 30).remainder(251).to(torch.uint8).view(3, 40, 30)
        torch.manual_seed(0)
        different = {tuple(task.views().train(image).flatten().tolist()) for _ in range(6)}
        assert len(different) == (2 if augment == "center-crop" else 6)
    frozen = make_task(replace(trained, freeze_backbone=True, image_size=None))
    assert frozen.eyes.framing.keep_aspect
    assert frozen.eyes.framing.size == frozen.eyes.backbone.size


def test_small_networks_take_files_and_backbones_take_arrays(frozen):
    _, metrics = fit(
        replace(frozen, network="small-16", backbone=None, weights=None, image_size=None), Path("a"), quiet=True
    )
    assert metrics["last"]["target"]["rows"] == 24
    rng = np.random.default_rng(0)
    for name in ("s", "t"):
        np.savez(f"{name}.npz", x=rng.integers(0, 256, (20, 20, 20, 3), dtype=np.uint8), y=np.arange(20) % 3)
    fit(replace(frozen, source="s.npz", target="t.npz"), Path("b"), quiet=True)
    fit(replace(frozen, source="s.npz", target="new", freeze_backbone=False), Path("c"), quiet=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "new"}, "has no labels: expected class folders"),
        ({"source": "nowhere"}, "Nothing at nowhere"),
        ({"source": "labelled/ant"}, "has no labels"),
        ({"source": "new", "target": "labelled"}, "did you swap source and target"),
        ({"source": ".", "target": "labelled"}, "is the source one folder too high"),
        ({"backbone": "mobilenet_v2"}, "Did you mean 'torchvision:mobilenet_v2'"),
        ({"backbone": "resnet5o"}, "Unknown backbone 'resnet5o'"),
        ({"weights": "nowhere.pth"}, "No weights at nowhere.pth"),
        ({"ten_crop": True}, "ten crops are for a backbone that is trained"),
        ({"network": "lenet"}, "backbone is for photographs through a backbone, but here are the network lenet"),
        ({"source": "x.npz", "target": "x.npz"}, "backbone is for photographs"),
        ({"source": "x.npz", "backbone": None}, "feature vectors and the target images"),
        ({"workers": -1}, "workers is -1"),
    ],
)
def test_mistakes_are_explained_and_leave_nothing(frozen, change, message):
    np.savez("x.npz", x=np.zeros((9, 2)), y=np.arange(9) % 3)
    with pytest.raises(UserError, match=message):
        fit(replace(frozen, **change), Path("out"), quiet=True)
    assert not Path("out").exists()


def test_settings_and_data_that_do_nothing_are_noted(frozen):
    told = []
    make_task(replace(frozen, source_term="ce", mi=False, lambda0=0.5, beta=0.2, target="labelled"), told.append)
    notes = " ".join(told)
    assert "lambda0 is 0.5, but nothing uses it" in notes
    assert "beta is 0.2, but nothing uses it" in notes
    assert "Source and target are the same data" in notes


def test_folders_that_are_no_classes_are_no_labels(frozen):
    write_classes(Path("by-day"), classes=("monday", "tuesday"), tint=70)
    told = []
    task = make_task(replace(frozen, target="by-day"), told.append)
    assert task.target.test.y is None
    assert any("None of the target's classes (monday, tuesday)" in note for note in told)


def test_two_rows_of_one_name_keep_their_own_predictions(frozen, capsys):
    Path("list.txt").write_text("".join(f"new/{name}\n" for name in sorted(os.listdir("new"))[:6] * 2))
    out, _ = fit(frozen, Path("run"), quiet=True)
    assert main(["predict", str(out), "list.txt"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert rows[:6] == rows[6:]
    truncate(Path("new/0-02.png"))
    assert main(["predict", str(out), "list.txt", "--out", "p.csv"]) == 0
    assert "10 predictions written" in capsys.readouterr().err
    after = Path("p.csv").read_text().splitlines()[1:]
    assert [row.split(",")[:2] for i, row in enumerate(after) if i % 6 != 2] == [
        row.split(",")[:2] for i, row in enumerate(rows) if i % 6 != 2
    ]


def test_the_cache_is_not_believed_blindly(frozen, monkeypatch):
    backbone, device = make_backbone(TINY, "none", 32), torch.device("cpu")
    images = open_dataset("labelled").train.x

    def computed():
        return extract(images, backbone, FRAMING, device, 0, quiet=True)

    whole = computed()
    monkeypatch.setattr(features, "PART", 7)
    again = computed()
    assert again.rows == whole.rows
    torch.testing.assert_close(again.x, whole.x)
    part = next(Path("cache/features").rglob("rows-000000007.npz"))
    part.with_name("rows-000000014.npz").write_bytes(part.read_bytes())  # the rows of another span
    assert (computed().computed, computed().rows) == (7, whole.rows)


def test_an_image_that_can_be_read_again_is(frozen, monkeypatch):
    backbone, device = make_backbone(TINY, "none", 32), torch.device("cpu")
    images, read = open_dataset("labelled").train.x, ImageFiles.read
    assert images.fingerprint

    def failing(self, row):
        if row == 3:
            raise OSError("the disk is busy")
        return read(self, row)

    monkeypatch.setattr(ImageFiles, "read", failing)
    for _ in range(2):
        assert extract(images, backbone, FRAMING, device, 0, quiet=True).unreadable == {3: "the disk is busy"}
    monkeypatch.setattr(ImageFiles, "read", read)
    assert extract(images, backbone, FRAMING, device, 0, quiet=True).unreadable == {}


def test_a_place_that_is_taken_is_refused_before_any_work(frozen):
    fit(frozen, Path("a"), quiet=True)
    shutil.rmtree("cache")
    with pytest.raises(UserError, match="another config: lambda0"):
        fit(replace(frozen, lambda0=0.5), Path("a"), quiet=True)
    assert not Path("cache").exists()


def test_other_data_or_weights_are_another_run(frozen):
    fit(frozen, Path("a"), quiet=True)
    shutil.rmtree("cache")
    fit(frozen, Path("a"), quiet=True)  # the same data, computed again
    os.remove("new/0-00.png")
    with pytest.raises(UserError, match="the target changed since it began"):
        fit(frozen, Path("a"), quiet=True)
    torch.manual_seed(3)
    for name in ("w.pth", "v.pth"):
        torch.save(make_backbone(TINY, "none").module.state_dict(), name)
    fit(replace(frozen, weights="w.pth"), Path("b"), quiet=True)
    os.replace("v.pth", "w.pth")
    with pytest.raises(UserError, match="the backbone changed since it began"):
        fit(replace(frozen, weights="w.pth"), Path("b"), quiet=True)


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
    assert "did you mean deep/images?" in capsys.readouterr().out
    assert main(["doctor", "labelled"]) == 1  # a single domain will do
    np.savez("x.npz", x=np.zeros((9, 2)), y=np.arange(9) % 3)
    assert main(["doctor", "x.npz", "--fix-list", "mended"]) == 2
    assert "nothing to list" in capsys.readouterr().err
    assert main(["doctor", "labelled", "--workers", "-1"]) == 2
    assert main(["list", "backbones", "mobilenetv2"]) == 0
    assert "mobilenetv2_100" in capsys.readouterr().out.split()


def test_features_refuses_what_it_cannot_use(frozen, capsys):
    np.savez("x.npz", x=np.zeros((9, 2)))
    assert main(["features", "x.npz", *SEE, "--out", "f.npz"]) == 2
    assert "feature vectors already" in capsys.readouterr().err
    assert main(["features", "new", *SEE, "--out", "f.csv"]) == 2
    assert "ending in .npz" in capsys.readouterr().err
    Path("cache").write_text("in the way")
    assert main(["features", "new", *SEE, "--out", "f.npz"]) == 2
    assert "Name another folder with TSADAPT_CACHE" in capsys.readouterr().err


@pytest.mark.skipif("TSADAPT_DATA" not in os.environ, reason="needs Office-Caltech-10 under TSADAPT_DATA")
def test_features_agree_with_those_made_from_the_original_images(tmp_path, monkeypatch):
    root = Path(os.environ["TSADAPT_DATA"])
    file, reference = root / "weights/mobilenet_v2-b0353104.pth", root / "features/office-caltech_dslr.npz"
    if not (file.exists() and reference.exists()):
        pytest.skip("no weights and reference features there")
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path))
    see = ["--backbone", "torchvision:mobilenet_v2", "--weights", str(file)]
    assert main(["features", "office-caltech:dslr", *see, "--out", str(tmp_path / "d.npz"), "--quiet"]) == 0
    ours, theirs = np.load(tmp_path / "d.npz"), np.load(reference)
    assert (ours["y"] == theirs["y"]).all()
    assert [*ours["classes"]] == [*theirs["classes"]]
    a, b = (torch.from_numpy(f["x"].astype(np.float32)) for f in (ours, theirs))
    assert float(torch.cosine_similarity(a, b).median()) >= 0.98
