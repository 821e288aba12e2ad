"""Features of photographs: computed once, kept, and not believed blindly."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.photos import FRAMING, QUICK, SEE, TINY, truncate
from tests.runs.killing import weights

from tsadapt.cli import main
from tsadapt.data.images import ImageFiles, UnreadableImageError
from tsadapt.data.open import open_dataset
from tsadapt.data.transforms import Framing, evaluation_transform
from tsadapt.models import features
from tsadapt.models.backbones import make_backbone
from tsadapt.models.features import extract
from tsadapt.runs.fit import train_run
from tsadapt.runs.model import load


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
        train_run(frozen, Path("a"), quiet=True)
    assert len([*Path("cache/features").rglob("*.npz")]) == 2
    train_run(frozen, Path("a"), quiet=True)
    assert len(calls) == 3 + 3 + 5


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


def test_two_rows_of_one_name_keep_their_own_predictions(frozen, capsys):
    Path("list.txt").write_text("".join(f"new/{name}\n" for name in sorted(os.listdir("new"))[:6] * 2))
    out, _ = train_run(frozen, Path("run"), quiet=True)
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
            raise UnreadableImageError("the disk is busy")
        return read(self, row)

    monkeypatch.setattr(ImageFiles, "read", failing)
    for _ in range(2):
        assert extract(images, backbone, FRAMING, device, 0, quiet=True).unreadable == {3: "the disk is busy"}
    monkeypatch.setattr(ImageFiles, "read", read)
    assert extract(images, backbone, FRAMING, device, 0, quiet=True).unreadable == {}


def test_features_refuses_what_it_cannot_use(frozen, capsys):
    np.savez("x.npz", x=np.zeros((9, 2)))
    assert main(["features", "x.npz", *SEE, "--out", "f.npz"]) == 2
    assert "feature vectors already" in capsys.readouterr().err
    assert main(["features", "new", *SEE, "--out", "f.csv"]) == 2
    assert "ending in .npz" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_is_done_without(frozen, capsys):
    assert main(["features", "new", *SEE, "--out", "kept.npz", "--quiet"]) == 0
    shutil.rmtree("cache")
    Path("cache").write_text("in the way")
    capsys.readouterr()
    for _ in range(2):
        assert main(["features", "new", *SEE, "--out", "f.npz", "--quiet"]) == 0
        said = capsys.readouterr().err
        assert said.count("TSADAPT_CACHE") == 1
        assert "features cannot be cached in" in said
        assert (np.load("f.npz")["x"] == np.load("kept.npz")["x"]).all()
    out, _ = train_run(frozen, Path("run"), quiet=True)  # its backbone is not shared through the cache, either
    assert "features cannot be cached in" in capsys.readouterr().err
    assert len(load(out, device="cpu").predict("new")) == len(np.load("f.npz")["x"])


def test_a_damaged_part_of_the_cache_is_computed_again(frozen):
    assert main(["features", "new", *SEE, "--out", "f.npz", "--quiet"]) == 0
    (part,) = Path("cache/features").rglob("rows-*.npz")
    before, data = np.load("f.npz")["x"], part.read_bytes()
    for wrong in (
        b"",
        data[:50],
        data[:-60] + bytes(60),
        b"PK\x03\x04" + bytes(100),
        data.replace(b"\x00\x08\x00", b"\x00\x63\x00"),
    ):
        part.write_bytes(wrong)
        assert main(["features", "new", *SEE, "--out", "f.npz", "--quiet"]) == 0
        assert (np.load("f.npz")["x"] == before).all()
        assert part.read_bytes() == data


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
    by_class = np.lexsort((ours["names"], ours["y"]))  # theirs: class after class, each by file name
    assert [*by_class] != [*range(len(by_class))]  # ours: by file name, whatever the class
    assert (ours["y"][by_class] == theirs["y"]).all()
    assert [*ours["classes"]] == [*theirs["classes"]]
    a, b = torch.from_numpy(ours["x"][by_class]).float(), torch.from_numpy(theirs["x"]).float()
    assert float(torch.cosine_similarity(a, b).median()) >= 0.98


def test_a_pipe_in_the_cache_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "rows-000000000.npz")
    assert features._read(tmp_path / "rows-000000000.npz", range(1), None) is None
