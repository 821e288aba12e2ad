"""The name of a file in a run's folder or a sweep's is written once: everything else asks the folder."""

import ast
import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.configs import changed

import tsadapt
from tsadapt.cache import cache_root
from tsadapt.cli import main
from tsadapt.errors import UserError
from tsadapt.runs.fit import train_run
from tsadapt.runs.folder import RunFolder
from tsadapt.runs.model import load
from tsadapt.runs.records import Records

ROOT = Path(tsadapt.__file__).parent
FILES = [
    "config.toml",
    "manifest.json",
    "metrics.json",
    "confusion.safetensors",
    "records.jsonl",
    "memory.safetensors",
    "model.json",
    "model.safetensors",
    "backbone.safetensors",
    "choice.json",
    "scores.csv",
    "oracle.json",
    "optuna.db",
]


def literals(source: str) -> set[str]:
    """The string constants of a module; docstrings, and those of attributes and fields, aside."""
    tree = ast.parse(source)
    prose = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose
    }


MODULES = {path.relative_to(ROOT).as_posix(): literals(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}


@pytest.mark.parametrize("name", FILES)
def test_it_is_written_in_one_module(name):
    assert [module for module, found in MODULES.items() if name in found] == ["runs/folder.py"]


def test_the_scan_sees_what_it_should():
    source = '"""config.toml"""\nx = "config.toml"\ndef f():\n    """metrics.json"""\n    return f"{x}/choice.json"\n'
    assert {"config.toml", "/choice.json"} == literals(source)


def test_overwriting_keeps_the_lock_and_what_is_not_a_run_s(config, tmp_path):
    """A second process stays out while the first replaces the folder and trains in it."""
    out = tmp_path / "run"
    train_run(config, out, quiet=True)
    (out / "mine.txt").write_text("notes")
    run = RunFolder(out)
    with run.lock():
        run.claim(changed(config, seed=1), {"data": {}}, overwrite=True)
        assert run.config.seed == 1
        assert not run.done
        assert (out / "mine.txt").read_text() == "notes"
        with pytest.raises(UserError, match="being trained by another process"), RunFolder(out).lock():
            pass
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_a_chosen_model_that_is_missing_is_not_another_one(config, tmp_path):
    out, metrics = train_run(changed(config, candidates=3), tmp_path / "run", quiet=True)
    last = metrics["last"]["step"]
    step = next(step for step in RunFolder(out).prediction_steps() if step != last)
    metrics["selected"]["step"] = step
    RunFolder(out).write_metrics(metrics)
    load(out, use="selected", device="cpu")
    shutil.rmtree(RunFolder(out).candidate(step).path)
    with pytest.raises(UserError, match=f"step {step}.*missing"):
        load(out, use="selected", device="cpu")


def test_a_model_that_is_not_finite_predicts_nothing(config, tmp_path):
    out, _ = train_run(config, tmp_path / "run", quiet=True)
    model = load(out, device="cpu")
    with torch.no_grad():
        model.network.head.weight[0, 0] = float("nan")
    model.save(RunFolder(out).model)
    with pytest.raises(UserError, match=r"heads\.0\.weight has values that are not finite"):
        load(out, device="cpu")


def test_a_damaged_backbone_in_the_cache_is_written_anew(frozen, tmp_path):
    train_run(frozen, tmp_path / "a", quiet=True)
    (shared,) = (cache_root() / "backbones").iterdir()
    shared.unlink()
    os.mkfifo(shared)
    train_run(changed(frozen, lr=0.03), tmp_path / "pipe", quiet=True)  # which nobody ever writes to
    assert shared.is_file()
    state = {name: tensor + 1 for name, tensor in load_file(shared).items()}
    shared.unlink()  # the first run keeps its link to what was there
    save_file(state, shared)
    train_run(changed(frozen, lr=0.02), tmp_path / "b", quiet=True)
    a, b = (load_file(RunFolder(tmp_path / name).model.backbone) for name in "ab")
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_confusion_matrices_of_many_classes_have_a_file_of_their_own(config, monkeypatch):
    run, small = train_run(config, Path("small"), quiet=True)
    monkeypatch.setattr("tsadapt.runs.evaluate.MOST_CLASSES", 2)
    run, metrics = train_run(changed(config, candidates=2), Path("run"), quiet=True)
    folder = RunFolder(run)
    assert metrics == folder.metrics
    for part in ("source", "target"):
        table = np.array(small["last"][part]["confusion"])
        assert metrics["last"][part]["confusion"] == {"file": "confusion.safetensors", "key": f"last.{part}.confusion"}
        for found in (folder.confusion(metrics["last"][part]), RunFolder(Path("small")).confusion(small["last"][part])):
            assert found.dtype == np.int64
            again = np.zeros_like(table)
            again[found[:, 0], found[:, 1]] = found[:, 2]
            assert again.tolist() == table.tolist()
    assert folder.confusion(metrics["selected"]["target"])[:, 2].sum() == 120
    (run / "confusion.safetensors").write_bytes(b"x")
    with pytest.raises(UserError, match=r"confusion\.safetensors cannot be read"):
        folder.confusion(metrics["last"]["target"])
    monkeypatch.setattr("tsadapt.runs.evaluate.MOST_CLASSES", 500)
    train_run(config, Path("run"), quiet=True, overwrite=True)
    assert not (run / "confusion.safetensors").exists()


@pytest.mark.parametrize("name", ["manifest.json", "metrics.json", "model/model.json"])
@pytest.mark.parametrize(
    "damage", ["", "[]", "{}", "null", '"x"', "{", "[" * 100_000, b"\xff\xfe", "9" * 5000, "one letter"]
)
def test_a_damaged_description_is_named_and_never_believed(config, tmp_path, name, damage, capsys):
    train_run(config, tmp_path / "run", quiet=True)
    path, words = tmp_path / "run" / name, [str(tmp_path / "run"), "target.npz"]
    text = path.read_text()
    if damage == "one letter":
        damage = text.replace("bee", "cat", 1) if "bee" in text else text.replace("source", "sauce", 1)
        assert damage != text
    path.write_bytes(damage if isinstance(damage, bytes) else damage.encode())
    capsys.readouterr()
    if name == "model/model.json":
        assert main(["predict", *words]) == 2
    else:
        assert main(["select", words[0]]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert path.name in said


def test_damaged_metrics_are_made_again(config, tmp_path, capsys):
    _, metrics = train_run(config, tmp_path / "run", quiet=True)
    before = (tmp_path / "run/metrics.json").read_bytes()
    (tmp_path / "run/metrics.json").write_bytes(before.replace(b"accuracy", b"acuracy", 1))
    assert train_run(config, tmp_path / "run", quiet=True)[1] == metrics
    assert "does not match its checksum. The run is evaluated again" in capsys.readouterr().err
    assert (tmp_path / "run/metrics.json").read_bytes() == before


def test_a_run_with_a_damaged_manifest_can_be_overwritten(config, tmp_path):
    _, metrics = train_run(config, tmp_path / "run", quiet=True)
    (tmp_path / "run/manifest.json").write_text("[]")
    with pytest.raises(UserError, match=r"manifest\.json was not written by tsadapt.*or --overwrite it"):
        train_run(config, tmp_path / "run", quiet=True)
    assert train_run(config, tmp_path / "run", quiet=True, overwrite=True)[1] == metrics


def test_weights_of_another_run_are_noticed(config, tmp_path):
    train_run(config, tmp_path / "a", quiet=True)
    train_run(changed(config, seed=1), tmp_path / "b", quiet=True)
    shutil.copy(tmp_path / "b/model/model.safetensors", tmp_path / "a/model/model.safetensors")
    with pytest.raises(UserError, match=r"model\.safetensors is damaged.*Train it again\.$"):
        load(tmp_path / "a", device="cpu")
    (tmp_path / "a/model/model.safetensors").unlink()
    with pytest.raises(UserError, match=r"model\.safetensors is missing"):
        load(tmp_path / "a", device="cpu")


def test_a_backbone_that_changed_is_noticed(frozen, tmp_path):
    train_run(frozen, tmp_path / "a", quiet=True)
    file = RunFolder(tmp_path / "a").model.backbone
    state = {name: tensor + 1 for name, tensor in load_file(file).items()}
    file.unlink()
    save_file(state, file)
    with pytest.raises(UserError, match=r"backbone\.safetensors is damaged"):
        load(tmp_path / "a", device="cpu")


def test_a_folder_that_is_removed_while_training_stops_the_run(config, tmp_path):
    out = tmp_path / "run"

    def remove(trainer):
        if trainer.at == 10:
            shutil.rmtree(out)

    with pytest.raises(UserError, match=r"run was removed or replaced while .* Run the same command again\."):
        train_run(config, out, quiet=True, watch=remove)
    assert not out.exists()
    assert train_run(config, out, quiet=True)[1] == train_run(config, tmp_path / "other", quiet=True)[1]


def test_records_that_cannot_be_written_are_named(tmp_path, monkeypatch):
    class Full:
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    records = Records(tmp_path / "records.jsonl", 0)
    with monkeypatch.context() as patch:
        patch.setattr(records, "_file", Full())
        with pytest.raises(OSError, match=r"No space left on device: .*records\.jsonl"):
            records.append({"step": 1})
    records.close()


@pytest.mark.parametrize("renames", [0, 1, 2, 3])
def test_a_kill_while_replacing_loses_nothing(config, tmp_path, monkeypatch, renames):
    """Killed before, between or after the renames, the same command goes on; what is no run's stays."""
    out = tmp_path / "run"
    train_run(config, out, quiet=True)
    (out / "mine.txt").write_text("notes")
    (out / "more.txt").write_text("notes")
    rename, done = Path.rename, []

    def killed(path, target):
        if len(done) == renames:
            raise KeyboardInterrupt
        done.append(path)
        return rename(path, target)

    other = changed(config, seed=1)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            train_run(other, out, quiet=True, overwrite=True)
    _, metrics = train_run(other, out, quiet=True, overwrite=True)
    assert metrics["hash"] == RunFolder(out).config.hash()
    assert RunFolder(out).config.seed == 1
    assert (out / "mine.txt").read_text() == (out / "more.txt").read_text() == "notes"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".run")] == []
