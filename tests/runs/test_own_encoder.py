"""Runs with somebody's own encoder: what they keep of it, and that their folders never make its code run."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.configs import changed
from tests.photos import QUICK, picture
from tests.runs.killing import Killed, kill_at, weights
from torch import nn

import tsadapt
from tsadapt.cli import main
from tsadapt.errors import UserError
from tsadapt.report.augmented import augmented_run
from tsadapt.runs.fit import train_run
from tsadapt.runs.folder import read_json, write_sealed

FILE = """
from pathlib import Path
from torch import nn

Path("was_run").touch()


def make():
    layers = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
    encoder = nn.Sequential(layers, nn.Flatten())
    encoder.size = 32
    return encoder
"""
OWN = ["--backbone", "enc.py:make"]


class Encoder(nn.Module):
    """An encoder of this program."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU())
        self.size = 32

    def forward(self, x):
        return self.layers(x).mean((2, 3))


@pytest.fixture
def own(frozen):
    """A short frozen run, its encoder in a file."""
    Path("enc.py").write_text(FILE)
    return changed(frozen, backbone="enc.py:make", weights=None, image_size=None)


def was_run():
    there = Path("was_run").exists()
    Path("was_run").unlink(missing_ok=True)
    return there


@pytest.mark.parametrize("frozen_too", [True, False])
def test_from_a_file_to_predictions(own, capsys, frozen_too):
    flags = ["--freeze-backbone"] if frozen_too else ["--no-freeze-backbone"]
    assert main(["fit", "labelled", "new", *OWN, *flags, *QUICK, "--tsa", "--out", "run"]) == 0
    digest = json.loads(Path("run/manifest.json").read_text())["data"]["backbone"]["digest"]
    described = json.loads(Path("run/model/model.json").read_text())["images"]
    assert described["encoder"] == {"function": "make", "digest": digest}
    assert described["backbone"]["name"] == str(Path("enc.py").resolve()) + ":make"
    assert main(["predict", "run", "new", "--out", "p.csv", *OWN]) == 0
    assert main(["evaluate", "run", "labelled", *OWN]) == 0
    model = tsadapt.load("run", backbone="enc.py:make")
    found = [line.split(",")[1] for line in Path("p.csv").read_text().splitlines()[1:]]
    assert [*model.predict("new")] == found
    assert was_run()
    capsys.readouterr()
    for verb in (["predict", "run", "new"], ["evaluate", "run", "labelled"], ["augmented", "run"]):
        assert main(verb) == 2
        said = capsys.readouterr().err
        assert "which it never imports. Give it: --backbone" in said
        assert said.count("\n") == 1
    with pytest.raises(UserError, match="never imports"):
        tsadapt.load("run")
    assert not was_run()


def test_a_changed_file_is_refused_and_not_run(own, capsys):
    words = ["fit", "labelled", "new", *OWN, *QUICK, "--out", "run"]
    assert main(words) == 0
    assert was_run()
    Path("enc.py").write_text(FILE + "# changed\n")
    capsys.readouterr()
    assert main(words) == 2
    assert "holds a run with another encoder: " in capsys.readouterr().err
    assert main(["predict", "run", "new", *OWN]) == 2
    assert "is not the encoder that the run was trained with" in capsys.readouterr().err
    assert not was_run()
    assert main([*words, "--overwrite"]) == 0
    assert main(["predict", "run", "new", "--out", "p.csv", *OWN]) == 0


def test_runs_named_by_their_config_see_a_changed_file_too(own):
    path, _ = train_run(own, quiet=True)
    Path("enc.py").write_text(FILE + "# changed\n")
    with pytest.raises(UserError, match=r"the backbone changed since it began"):
        train_run(own, quiet=True)
    Path("enc.py").write_text(FILE)
    assert train_run(own, quiet=True)[0] == path


def test_other_weights_are_another_run(own):
    torch.manual_seed(1)
    namespace: dict = {}
    exec(FILE, namespace)
    torch.save(namespace["make"]().state_dict(), "w.pth")
    a, _ = train_run(own, Path("a"), quiet=True)
    b, _ = train_run(changed(own, weights="w.pth"), Path("b"), quiet=True)
    assert weights(a) != weights(b)
    kept = tsadapt.load("b", backbone="enc.py:make").preprocessing.backbone.module.state_dict()
    assert all(torch.equal(value, kept[name]) for name, value in torch.load("w.pth").items())


def test_a_config_never_names_code_that_is_run(own, capsys):
    assert main(["fit", "labelled", "new", *OWN, *QUICK, "--tsa", "--keep-memory", "--out", "run"]) == 0
    was_run()
    assert main(["fit", "--config", "run/config.toml", "--seed", "1"]) == 2
    assert "names code, which is run only if you name it, too: add --backbone" in capsys.readouterr().err
    assert main(["augmented", "run"]) == 2
    described = read_json(Path("run/model/model.json"), ("images",))
    del described["images"]["encoder"]
    described["images"]["backbone"]["name"] = "enc.py:make"
    write_sealed(Path("run/model/model.json"), described)
    for verb in (["predict", "run", "new"], ["augmented", "run"]):
        assert main(verb) == 2
    assert not was_run()
    described["images"] = None  # so that only the config is left to name it
    write_sealed(Path("run/model/model.json"), described)
    with pytest.raises(UserError, match="names code"):
        augmented_run(Path("run"))
    assert not was_run()
    assert main(["fit", "--config", "run/config.toml", "--seed", "1", *OWN, "--out", "again", "--quiet"]) == 0


def test_pictures_of_augmented_features_with_the_encoder_given(own):
    assert main(["fit", "labelled", "new", *OWN, *QUICK, "--tsa", "--keep-memory", "--out", "run"]) == 0
    assert main(["augmented", "run", *OWN]) == 0
    assert Path("augmented/neighbours.png").is_file()


def test_a_trained_encoder_killed_and_resumed(own, monkeypatch):
    config = changed(own, freeze_backbone=False)
    whole, _ = train_run(config, Path("whole"), quiet=True)
    with monkeypatch.context() as patch:
        kill_at(patch, 8)
        with pytest.raises(Killed):
            train_run(config, Path("again"), quiet=True)
    again, _ = train_run(config, Path("again"), quiet=True)
    assert weights(whole) == weights(again)


def test_features_and_a_library_s_run_that_needs_no_encoder(own, capsys):
    assert main(["features", "new", *OWN, "--out", "f.npz"]) == 0
    assert np.load("f.npz")["x"].shape == (24, 96)
    see = ["--backbone", "test_efficientnet", "--weights", "none", "--image-size", "32"]
    assert main(["fit", "labelled", "new", *see, *QUICK, "--out", "run"]) == 0
    assert main(["predict", "run", "new", *OWN]) == 2
    assert "has no encoder of your own: leave out --backbone" in capsys.readouterr().err


@pytest.mark.parametrize("freeze", [True, False])
def test_a_module_in_python(frozen, freeze):
    torch.manual_seed(0)
    module = Encoder()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    known = {"steps": 12, "batch_size": 6, "bottleneck": 8, "device": "cpu", "freeze_backbone": freeze, "out": "run"}
    model = tsadapt.fit("labelled", "new", backbone=module, tsa=True, **known)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    moved = not torch.equal(_first(model), before["layers.0.weight"])
    assert moved != freeze
    again = tsadapt.fit("labelled", "new", backbone=module, tsa=True, **known)  # finds it done
    image = picture(1, 99)
    assert (again.predict_proba(image) == model.predict_proba(image)).all()
    other = Encoder()  # with other weights, which the run's replace
    loaded = tsadapt.load("run", backbone=other)
    assert (loaded.predict_proba(image) == model.predict_proba(image)).all()
    with pytest.raises(UserError, match=r"another config: backbone \(there 'memory:"):
        tsadapt.fit("labelled", "new", backbone=other, tsa=True, **known)
    with pytest.raises(UserError, match=r"Give it: backbone=module"):
        tsadapt.load("run")
    with pytest.raises(UserError, match="is not the encoder"):
        tsadapt.load("run", backbone=nn.Flatten())
    with pytest.raises(UserError, match=r"expected a name, FILE.py:FUNCTION or a torch.nn.Module"):
        tsadapt.fit("labelled", "new", backbone=Encoder)


def _first(model):
    trained = not model.preprocessing.frozen
    layers = model.network.backbone.body if trained else model.preprocessing.backbone.module
    return layers.layers[0].weight


def test_feature_vectors_have_no_backbone(frozen):
    x = np.eye(6)
    with pytest.raises(UserError, match="these are feature vectors"):
        tsadapt.fit((x, [0, 1] * 3), x, backbone=Encoder())
