import json

import pytest
import torch

from tsadapt.cli import main
from tsadapt.config import RunConfig
from tsadapt.engine.kept_memory import load_memory
from tsadapt.engine.run import fit
from tsadapt.errors import UserError
from tsadapt.recipes import Asked, reproduce
from tsadapt.recipes.augmented import augmented_images
from tsadapt.recipes.scene import scene_of_run

SHORT = {
    "network": "small-16", "steps": 4, "batch_size": 8, "target_batch_size": 8, "lr": 0.01, "source_term": "tsa",
    "mi": True, "device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("augmented")
    return out, reproduce("figure-augmented", Asked(quick=True, steps=4), out, "it")


def test_the_small_form_of_the_picture(made):
    out, written = made
    names = {path.name for path in written}
    assert {"figure-augmented.png", "figure-augmented-strip.png", "figure-augmented.md"} <= names
    assert all(path.stat().st_size > 5000 for path in written if path.suffix == ".png")
    run = next(iter(json.loads((out / "quick" / "figure-augmented.json").read_text())["runs"].values()))
    numbers, distance = run["numbers"], run["distance_to_the_augmented_point"]
    assert distance["after"].keys() == distance["before"].keys() == {"0.0", "0.25", "0.5", "0.75", "1.0"}
    assert all(distance["after"][s] <= distance["before"][s] for s in distance["after"])
    assert numbers["images"] == 20
    assert run["versions"]
    assert run["settings"]["gan"]["steps"] == 3
    assert 0 <= numbers["share of augmented images that keep their class"] <= 1
    page = (out / "quick" / "figure-augmented.md").read_text()
    assert "features to the target's class mean: augmented image" in page
    assert "λ = 0 is the control" in page
    assert "![figure-augmented-strip](figure-augmented-strip.png)" in page


def test_generator_and_run_are_found_again(made, capsys):
    out, _ = made
    before = {path: path.stat().st_mtime_ns for path in (out / "quick" / "work" / "generators").rglob("*.pt")}
    kept = out / "quick" / "figure-augmented.json"
    kept.unlink()
    reproduce("figure-augmented", Asked(quick=True, steps=4), out, "it")
    assert before
    assert before == {path: path.stat().st_mtime_ns for path in (out / "quick" / "work" / "generators").rglob("*.pt")}
    assert "done already" in capsys.readouterr().err


def test_a_run_keeps_its_memory_on_request(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = RunConfig("digits:uci", "digits:uci", **SHORT)
    fit(config, tmp_path / "run", quiet=True)
    from_checkpoint = load_memory(tmp_path / "run")
    assert not (tmp_path / "run" / "memory.safetensors").exists()
    fit(config, tmp_path / "run", quiet=True, keep_memory=True)  # done already: only the memory is added
    source, target = load_memory(tmp_path / "run")
    assert torch.equal(source.features, from_checkpoint[0].features)
    assert torch.equal(target.labels, from_checkpoint[1].labels)
    assert torch.equal(source.count[:-1], torch.bincount(source.labels, minlength=11)[:10])
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.unlink()
    assert torch.equal(load_memory(tmp_path / "run")[0].features, source.features)


def test_what_has_no_memory_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--network", "small-16", "--steps", "2", "--quiet"]
    assert main(["fit", "digits:uci", "digits:uci", *words, "--keep-memory"]) == 2
    assert "no memory to keep" in capsys.readouterr().err
    assert main(["fit", "digits:uci", "digits:uci", *words, "--out", "run"]) == 0
    with pytest.raises(UserError, match="--keep-memory"):
        load_memory(tmp_path / "run")


def test_the_moments_are_of_evaluation_mode(tmp_path, monkeypatch):
    """With dropout and batch statistics, the memory's own features lie elsewhere than any image's."""
    monkeypatch.chdir(tmp_path)
    config = RunConfig("digits:uci", "digits:uci", **SHORT)
    run, _ = fit(config, tmp_path / "run", quiet=True, keep_memory=True)
    scene, (source, target) = scene_of_run(run), load_memory(run)
    assert torch.equal(scene.augmenter.target.labels, target.labels)
    assert not torch.allclose(scene.augmenter.source.features, source.features)
    assert torch.equal(scene.augmenter.source.features, scene.f_s)
    y = scene.task.source.train.y
    assert torch.allclose(scene.augmenter.source.moments().mean[3], scene.f_s[y == 3].mean(0), atol=1e-5)


def test_several_heads_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, _ = fit(RunConfig("digits:uci", "digits:uci", method="jada", **SHORT), tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match="2 heads"):
        scene_of_run(run)


def test_the_verb_for_ones_own_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--network", "small-16", "--steps", "3", "--quiet", "--target-share", "0.5"]
    assert main(["fit", "digits:uci", "digits:uci", "--tsa", "--keep-memory", *words, "--out", "run"]) == 0
    assert main(["augmented", "run", "--out", "pictures", "--strength", "0.5"]) == 0
    assert (tmp_path / "pictures" / "neighbours.png").stat().st_size > 5000
    assert "(oracle)" in capsys.readouterr().out
    assert main(["augmented", "nowhere"]) == 2
    assert main(["augmented", "run", "--strength", "-1"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_features_have_no_images_to_draw(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = RunConfig("moons:source", "moons:target", **{**SHORT, "network": "moons"})
    with pytest.raises(UserError, match="neighbours"):
        augmented_images(config, tmp_path / "work", tmp_path / "picture", quick=True)
