import json
from pathlib import Path

import numpy as np
import pytest
from tests.photos import TINY, write_classes, write_flat

from tsadapt.cli import main
from tsadapt.errors import UserError
from tsadapt.runs.rank import Asked, parse_backbone, rank_backbones, ranked, scored


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("resnet50", Asked("resnet50")),
        (" torchvision:resnet18@96 ", Asked("torchvision:resnet18", 96)),
        ("mine.py:make=w.pth", Asked("mine.py:make", None, "w.pth")),
        ("a@32=none", Asked("a", 32, "none")),
    ],
)
def test_names_sizes_and_weights(text, asked):
    assert parse_backbone(text) == asked


@pytest.mark.parametrize("text", ["", "@32", "a@", "a@x", "a@0", "=w"])
def test_what_is_no_backbone(text):
    with pytest.raises(UserError, match="expected NAME"):
        parse_backbone(text)


def test_features_that_tell_the_classes_apart_come_first():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 4
    noise = rng.normal(size=(200, 8))
    good = noise + 4 * np.eye(4, 8)[y]
    found = ranked([scored("noise", noise, y, noise + 9), scored("good", good, y, good[:150] + 0.01)])
    assert [(one.name, one.rank) for one in found] == [("good", 1.0), ("noise", 2.0)]
    assert found[0].target_logme > found[1].target_logme
    assert found[0].a_distance < 1 < found[1].a_distance


def test_the_target_is_scored_by_the_nearest_source_means():
    y = np.arange(40) % 2
    x = np.eye(2)[y] + 0.01 * np.random.default_rng(0).normal(size=(40, 2))
    assert scored("a", x, y, x).target_logme == pytest.approx(scored("a", x, y, x).logme)
    one_class = scored("a", x, y, x[y == 0])
    assert one_class.target_logme == float("-inf")  # nothing can be read off


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path / "cache"))
    write_classes(tmp_path / "labelled")
    write_flat(tmp_path / "new")
    return tmp_path


def test_the_command_ranks_writes_and_keeps_features(photos, capsys):
    words = ["rank", "labelled", "new", "--backbones", f"{TINY}@32=none,{TINY}@48=none", "--workers", "0"]
    assert main([*words, "--out", "rank.json"]) == 0
    said = capsys.readouterr()
    assert "A-distance" in said.out
    assert "scored in" in said.err
    found = json.loads(Path("rank.json").read_text())
    assert {one["name"] for one in found} == {f"{TINY}@32", f"{TINY}@48"}
    assert [one["rank"] for one in found] == sorted(one["rank"] for one in found)
    assert found[0]["logme"] >= found[1]["logme"]
    parts = {path: path.stat().st_mtime_ns for path in Path("cache").rglob("*.npz")}
    assert parts
    assert main([*words, "--out", "again.json", "--quiet"]) == 0
    assert {path: path.stat().st_mtime_ns for path in Path("cache").rglob("*.npz")} == parts
    again = json.loads(Path("again.json").read_text())
    assert [one["logme"] for one in again] == [one["logme"] for one in found]


def test_target_labels_have_no_part(photos):
    names = [f"{TINY}@32=none", f"{TINY}@48=none"]
    without = rank_backbones("labelled", "new", names, workers=0)
    write_classes(photos / "sorted")
    with_labels = rank_backbones("labelled", "sorted", names, workers=0)
    assert [one.logme for one in without] == [one.logme for one in with_labels]


def test_weights_that_cannot_be_had_are_said_before_anything_is_computed(photos, monkeypatch, capsys):
    def fails(*_, **__):
        raise OSError("no network here")

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", fails)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fails)
    assert main(["rank", "labelled", "new", "--backbones", f"{TINY}=none,torchvision:resnet18@64"]) == 2
    err = capsys.readouterr().err
    assert "features of" not in err
    assert "no network here" in err
    assert (
        "Pass local weights: torchvision:resnet18@64=FILE (.safetensors or .pth), or torchvision:resnet18@64=none"
        in err
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["labelled", "new", "--backbones", f"{TINY}=none"], "name two or more different ones"),
        (["labelled", "new", "--backbones", f"{TINY}=none,{TINY}=none"], "name two or more different ones"),
        (["labelled", "new", "--backbones", f"{TINY}=none,resnet5000=none"], "Unknown backbone 'resnet5000'"),
        (["new", "new", "--backbones", f"{TINY}=none,{TINY}@48=none"], "needs labels of two classes"),
        (["labelled", "x.npz", "--backbones", f"{TINY}=none,{TINY}@48=none"], "holds feature vectors"),
    ],
)
def test_mistakes_are_one_line(photos, capsys, words, said):
    np.savez("x.npz", x=np.zeros((4, 3)))
    assert main(["rank", *words, "--workers", "0", "--quiet"]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1
