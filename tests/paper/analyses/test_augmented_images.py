import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from paper.__main__ import main as paper_main
from paper.analyses import augmented_images as augmented
from paper.jobs import Job, Workspace
from paper.reproduce import reproduce
from paper.request import Request
from tests.photos import QUICK as FEW
from tests.photos import SEE, write_classes

from tsadapt.cli import main
from tsadapt.config import RunConfig
from tsadapt.errors import UserError
from tsadapt.report.augmented import augmented_run
from tsadapt.runs.fit import train_run
from tsadapt.runs.folder import RunFolder
from tsadapt.runs.kept_memory import load_memory

SHORT = {
    "network": "small-16", "steps": 4, "batch_size": 8, "target_batch_size": 8, "lr": 0.01, "source_term": "tsa",
    "target_terms": ("mi",), "device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("augmented")
    return out, reproduce(Request("figure-augmented", quick=True, steps=4), out)


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
    assert 0 <= numbers["share that keeps its class under the classifier: augmented image"] <= 1
    assert run["data"]["target"]["rows"] == 5000
    page = (out / "quick" / "figure-augmented.md").read_text()
    assert "features to the target's class mean: augmented image" in page
    assert "λ = 0 is the control" in page
    assert "![figure-augmented-strip](figure-augmented-strip.png)" in page


def test_generator_and_run_are_found_again(made, capsys):
    out, _ = made
    before = {path: path.stat().st_mtime_ns for path in (out / "quick" / "work" / "generators").rglob("*.pt")}
    kept = out / "quick" / "figure-augmented.json"
    kept.unlink()
    reproduce(Request("figure-augmented", quick=True, steps=4), out)
    assert before
    assert before == {path: path.stat().st_mtime_ns for path in (out / "quick" / "work" / "generators").rglob("*.pt")}
    assert "already done" in capsys.readouterr().err


def test_a_run_keeps_its_memory_on_request(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = RunConfig("digits:uci", "digits:uci", **SHORT)
    train_run(config, tmp_path / "run", quiet=True)
    from_checkpoint = load_memory(RunFolder(tmp_path / "run"))
    assert not (tmp_path / "run" / "memory.safetensors").exists()
    metrics = (tmp_path / "run" / "metrics.json").stat().st_mtime_ns
    train_run(config, tmp_path / "run", quiet=True, keep_memory=True)  # already done: only the memory is added
    assert (tmp_path / "run" / "metrics.json").stat().st_mtime_ns == metrics
    source, target = load_memory(RunFolder(tmp_path / "run"))
    assert torch.equal(source.features, from_checkpoint[0].features)
    assert torch.equal(target.labels, from_checkpoint[1].labels)
    assert torch.equal(source.count[:-1], torch.bincount(source.labels, minlength=11)[:10])
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.unlink()
    assert torch.equal(load_memory(RunFolder(tmp_path / "run"))[0].features, source.features)
    (tmp_path / "run" / "memory.safetensors").unlink()
    with pytest.raises(UserError, match="checkpoint, which had the memory, is gone"):
        train_run(config, tmp_path / "run", quiet=True, keep_memory=True)
    assert (tmp_path / "run" / "metrics.json").stat().st_mtime_ns == metrics


def test_what_has_no_memory_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--network", "small-16", "--steps", "2", "--quiet"]
    assert main(["fit", "digits:uci", "digits:uci", *words, "--keep-memory"]) == 2
    assert "no memory to keep" in capsys.readouterr().err
    assert main(["fit", "digits:uci", "digits:uci", *words, "--out", "run"]) == 0
    with pytest.raises(UserError, match="--keep-memory"):
        load_memory(RunFolder(tmp_path / "run"))


def test_the_moments_are_of_evaluation_mode(tmp_path, monkeypatch):
    """With dropout and batch statistics, the memory's own features lie elsewhere than any image's."""
    monkeypatch.chdir(tmp_path)
    config = RunConfig("digits:uci", "digits:uci", **SHORT)
    run, _ = train_run(config, tmp_path / "run", quiet=True, keep_memory=True)
    augmented_features, (source, target) = augmented_run(run), load_memory(RunFolder(run))
    assert torch.equal(augmented_features.augmenter.target.labels, target.labels)
    assert not torch.allclose(augmented_features.augmenter.source.features, source.features)
    assert torch.equal(augmented_features.augmenter.source.features, augmented_features.f_s)
    y = augmented_features.task.source.train.y
    assert torch.allclose(
        augmented_features.augmenter.source.moments().mean[3], augmented_features.f_s[y == 3].mean(0), atol=1e-5
    )


def test_several_heads_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, _ = train_run(RunConfig("digits:uci", "digits:uci", method="jada", **SHORT), tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match="2 heads"):
        augmented_run(run)


def test_the_verb_for_ones_own_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--network", "small-16", "--steps", "3", "--quiet", "--target-share", "0.5"]
    assert main(["fit", "digits:uci", "digits:uci", "--tsa", "--keep-memory", *words, "--out", "run"]) == 0
    assert main(["augmented", "run", "--out", "pictures", "--strength", "0.5"]) == 0
    assert (tmp_path / "pictures" / "neighbours.png").stat().st_size > 5000
    assert "(oracle)" in capsys.readouterr().out
    assert main(["augmented", "nowhere"]) == 2
    assert main(["augmented", "run", "--strength", "-1"]) == 2
    assert paper_main(["augmented", "run", "--generator-steps", "0"]) == 2
    assert paper_main(["augmented", "run", "--strength", "2"]) == 2
    assert paper_main(["augmented", "nowhere"]) == 2
    monkeypatch.setattr(augmented, "STANDARD", augmented.QUICK)
    words = ["--generator-steps", "2", "--strength", "0.3"]
    assert paper_main(["augmented", "run", "--out", "pictures", *words]) == 0
    assert "keeps its class under the classifier: augmented image at λ = 1" in capsys.readouterr().out
    assert (tmp_path / "pictures" / "augmented-strip.png").stat().st_size > 5000
    assert "Traceback" not in capsys.readouterr().err


def test_features_have_no_images_to_draw(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = RunConfig("moons:source", "moons:target", **{**SHORT, "network": "moons"})
    job = Job("a", "b", 0, config)
    with pytest.raises(UserError, match="neighbours"):
        augmented.augmented_images_of_job(job, Workspace(tmp_path / "work", tmp_path / "picture", quick=True))


def test_a_picture_made_otherwise_is_made_again(made, monkeypatch, capsys):
    out, _ = made
    again = Request("figure-augmented", quick=True, steps=4)
    reproduce(again, out)
    said = capsys.readouterr().err
    assert "source-only +TSA |" not in said
    assert "nothing to train" in said
    (out / "quick" / "figure-augmented.png").unlink()
    reproduce(again, out)
    said = capsys.readouterr().err
    assert "source-only +TSA |" in said
    assert "nothing to train" not in said
    monkeypatch.setattr(augmented, "QUICK", replace(augmented.QUICK, restarts=1))
    path = reproduce(again, out)[0]
    assert "source-only +TSA |" in capsys.readouterr().err
    run = next(iter(json.loads(path.read_text())["runs"].values()))
    assert run["settings"]["restarts"] == 1


def test_the_run_s_own_settings_and_labels(tmp_path, monkeypatch):
    """What the run was not trained with is not drawn, and labels that changed since are noticed."""
    monkeypatch.chdir(tmp_path)
    with np.load(small_images(tmp_path / "a.npz")) as file:
        arrays = dict(file)
    config = RunConfig("a.npz", "a.npz", **SHORT, settings={"tsa": {"mean_shift": False, "min_count": 3}})
    run, _ = train_run(config, tmp_path / "run", quiet=True, keep_memory=True)
    augmenter = augmented_run(run).augmenter
    assert (augmenter.mean_shift, augmenter.covariance, augmenter.min_count) == (False, True, 3)
    np.savez("a.npz", **{**arrays, "y": arrays["y"][::-1]})
    with pytest.raises(UserError, match="different labels"):
        augmented_run(run)


def small_images(path):
    rng = np.random.default_rng(0)
    np.savez(path, x=rng.integers(0, 255, (60, 16, 16, 1), dtype=np.uint8), y=np.arange(60) % 3)
    return path


def test_images_that_cannot_be_read_are_left_out(tmp_path, monkeypatch):
    """With a backbone that is trained they are met here first; a frozen one drops them when it makes its features."""
    monkeypatch.chdir(tmp_path)
    write_classes(tmp_path / "a", n=4)
    write_classes(tmp_path / "b", n=4, tint=90)
    (tmp_path / "b" / "bee" / "00.png").write_bytes(b"damaged")
    words = [*SEE, *FEW, "--no-freeze-backbone", "--tsa", "--keep-memory", "--out", "run"]
    assert main(["fit", "a", "b", *words]) == 0
    augmented_features = augmented_run(tmp_path / "run")
    assert len(augmented_features.target) == len(augmented_features.f_t) == 11
    assert augmented_features.f_t.abs().sum(1).min() > 0
    assert augmented_features.target.row_name(4).endswith("01.png")
    assert main(["augmented", "run", "--out", "pictures"]) == 0
