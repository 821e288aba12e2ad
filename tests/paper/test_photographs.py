"""Tables of photographs: the true recipes on small copies of the layouts, and the weights of their backbones."""

import json
from dataclasses import replace

import pytest
import torch
from paper.__main__ import main
from paper.analyses.run_features import features_of_run
from paper.encoders.resnet50_v1 import resnet50_v1
from paper.protocols import PROTOCOLS, missing, our_encoder
from paper.reproduce import reproduce
from paper.request import Request
from safetensors.torch import save_file
from tests.photos import write_classes

from tsadapt.errors import UserError
from tsadapt.models.backbones import make_backbone
from tsadapt.runs.folder import RunFolder

SMALL = {"backbone": "test_efficientnet", "image_size": 32, "candidates": 1}


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """Small copies of Office-31 and of a part of Office-Caltech-10."""
    for domain, tint in (("amazon", 40), ("webcam", 90), ("dslr", 120)):
        write_classes(tmp_path / "data" / "office31" / domain / "images", n=4, tint=tint)
        write_classes(tmp_path / "data" / "office-caltech-10" / domain, n=4, tint=tint)
    monkeypatch.setenv("TSADAPT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    missing.cache_clear()
    yield tmp_path
    missing.cache_clear()


def test_the_resnet_recipes_on_a_small_copy_of_the_layout(photographs, monkeypatch):
    true, out = PROTOCOLS["office31"], photographs / "out"
    assert true.settings["backbone"] == "resnet50"
    assert true.settings["freeze_backbone"] is False
    assert PROTOCOLS["visda"].settings["backbone"] == "resnet101"
    small = {**true.settings, **SMALL, "batch_size": 4, "target_batch_size": 4, "workers": 0}
    monkeypatch.setitem(PROTOCOLS, "office31", replace(true, settings=small))
    request = Request("table2", seeds=(0,), rows=("source-only +TSA",), columns=("A → W",), steps=2, weights="none")
    reproduce(request, out)
    page = (out / "table2-weights-none-2-steps.md").read_text()
    assert "; 2 steps. Target accuracy" in page
    # What needs the network itself works with a backbone that is trained, too.
    for name, rows in (("table-samples", ("source-only",)), ("figure-bias", ("source-only +TSA",))):
        reproduce(replace(request, name=name, rows=rows, columns=("D → A",), steps=4), out)
    reproduce(replace(request, frozen=True), out)
    page = (out / "table2-frozen-weights-none-2-steps.md").read_text()
    assert "frozen test_efficientnet features" in page
    assert "· the paper" not in page  # another protocol


def test_the_last_stage_trained_with_an_encoder_and_weights_that_are_named_the_same_everywhere(
    photographs, monkeypatch
):
    name, out = "office31-layer4", photographs / "out"
    true = PROTOCOLS[name]
    given = {key: true.settings[key] for key in ("backbone", "weights", "train_from", "precision", "freeze_backbone")}
    assert given == {
        "backbone": "paper:resnet50_v1", "weights": "TSADAPT_DATA:weights/resnet50-v1.safetensors",
        "train_from": "layer4", "precision": "bf16", "freeze_backbone": None,
    }  # fmt: skip
    small = {**true.settings, "image_size": 64, "batch_size": 4, "target_batch_size": 4, "steps": 2, "workers": 0}
    monkeypatch.setitem(PROTOCOLS, name, replace(true, settings={**small, "candidates": 1, "views": 1}))
    request = Request("table2", on=name, seeds=(0,), rows=("source-only +TSA",), columns=("A → W",))
    with pytest.raises(UserError, match=r"No weights at .*expected resnet50-v1.safetensors in the folder"):
        reproduce(request, out)
    weights = photographs / "data" / "weights" / "resnet50-v1.safetensors"
    weights.parent.mkdir()
    torch.manual_seed(0)
    save_file(resnet50_v1().state_dict(), weights)
    written = reproduce(request, out)
    stored = json.loads(written[0].read_text())
    assert str(photographs) not in json.dumps({**stored, "not_run": {}})
    assert stored["settings"]["of_all"]["backbone"] == "paper:resnet50_v1"
    assert "here its last stage is trained" in written[-1].read_text()
    run = next((out / "work" / "runs").iterdir())
    assert features_of_run(run, 5).f_t.shape == (5, 256)
    with pytest.raises(UserError, match="names code that is not in"):
        our_encoder(replace(RunFolder(run).config, backbone=str(photographs / "mine.py:make")))


@pytest.fixture
def on_images(photographs, monkeypatch):
    protocol = PROTOCOLS["office-caltech-images"]
    monkeypatch.setitem(
        PROTOCOLS, "office-caltech-images", replace(protocol, settings={**protocol.settings, **SMALL, "steps": 4})
    )
    return photographs


def test_neighbours_of_photographs(on_images):
    (on_images / "data" / "office-caltech-10" / "webcam" / "bee" / "00.png").write_bytes(b"damaged")
    written = reproduce(Request("figure-neighbours", on="office-caltech-images", weights="none"), on_images / "out")
    page = written[-1].read_text()
    assert "(oracle)" in page
    assert written[1].name == "figure-neighbours-on-office-caltech-images-weights-none.png"
    assert written[1].stat().st_size > 5000


def test_weights_are_known_by_what_is_in_their_file(on_images, capsys):
    def save(seed):
        torch.manual_seed(seed)
        torch.save(make_backbone("test_efficientnet", "none").module.state_dict(), "w.pth")

    request = Request(
        "table2", on="office-caltech-images", weights="w.pth", seeds=(0,), rows=("source-only",), columns=("A → W",)
    )
    save(0)
    first = reproduce(request, on_images / "out")
    for same in ("w.pth", "./w.pth", str(on_images / "w.pth")):
        assert reproduce(replace(request, weights=same), on_images / "out") == first
        assert "nothing to train" in capsys.readouterr().err
    before = first[0].read_text()
    save(1)
    second = reproduce(request, on_images / "out")
    assert not {*first} & {*second}  # other files, and the first ones stay
    assert first[0].read_text() == before
    assert len([*(on_images / "out" / "work").glob("*/runs/*/metrics.json")]) == 2  # trained, not taken over


def test_what_is_wrong_with_weights_is_said_at_once(on_images, capsys):
    line = ["table2", "--on", "office-caltech-images", "--out", "out"]
    assert main([*line, "--weights", "nowhere.pth"]) == 2
    assert capsys.readouterr().err.startswith("paper: No weights at nowhere.pth: expected ")
    (on_images / "damaged.pth").write_bytes(b"damaged")
    assert main([*line, "--weights", "damaged.pth"]) == 2
    said = capsys.readouterr().err
    assert "damaged.pth cannot be loaded as weights" in said
    assert "to do" not in said
    assert not (on_images / "out").exists()
    assert main([*line, "--weights", "none", "--frozen"]) == 2
    assert "the backbone is frozen already, leave out --frozen" in capsys.readouterr().err
