"""A run that was stopped goes on to the same bits, and never from something else."""

import hashlib
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.configs import changed
from tests.runs.killing import Killed, kill_at, weights
from tests.tasks import write_task

from tsadapt.errors import UserError
from tsadapt.runs.fit import train_run
from tsadapt.training.setup import make_task, make_trainer
from tsadapt.training.trainer import NotFiniteError

TERMS = [
    {},
    {"source_term": "ce", "mi": False},
    {"source_term": "ce", "mi": True},
    {"source_term": "isda", "mi": False},
    {"source_term": "sampled", "samples": 3},
    {"estimator": "iterative"},
    {"mean_shift": False},
    {"covariance": "none", "mi": False},
    {"separate_bn": True, "target_batch_size": 9},
    {"precision": "bf16"},
]


@pytest.mark.parametrize("change", TERMS, ids=str)
def test_killed_and_resumed_ends_with_the_same_bits(config, change, monkeypatch, capsys):
    config = changed(config, **change)
    whole, _ = train_run(config, Path("whole"), quiet=True)
    with monkeypatch.context() as patch:
        kill_at(patch, 17)
        with pytest.raises(Killed):
            train_run(config, Path("again"), quiet=True)
    capsys.readouterr()
    again, metrics = train_run(config, Path("again"), quiet=True)
    assert "resumed at step 14" in capsys.readouterr().err
    assert weights(whole) == weights(again)
    assert (whole / "records.jsonl").read_bytes() == (again / "records.jsonl").read_bytes()
    assert (whole / "metrics.json").read_bytes() == (again / "metrics.json").read_bytes()
    steps = [json.loads(line)["step"] for line in (again / "records.jsonl").read_text().splitlines()]
    assert steps == [1, 5, 10, 15, 20, 24]
    assert metrics["last"]["step"] == 24


@pytest.mark.parametrize("step", [3, 7, 23])
def test_killed_early_on_a_checkpoint_or_late(config, step, monkeypatch):
    whole, _ = train_run(config, Path("whole"), quiet=True)
    with monkeypatch.context() as patch:
        kill_at(patch, step)
        with pytest.raises(Killed):
            train_run(config, Path("again"), quiet=True)
    again, _ = train_run(config, Path("again"), quiet=True)
    assert weights(whole) == weights(again)


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_a_damaged_checkpoint_is_passed_over(config, damage, monkeypatch, capsys):
    whole, _ = train_run(config, Path("whole"), quiet=True)
    with monkeypatch.context() as patch:
        kill_at(patch, 16)
        with pytest.raises(Killed):
            train_run(config, Path("again"), quiet=True)
    newest = Path("again/checkpoints/step-000000014.pt")
    data = newest.read_bytes()
    newest.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if damage is None else damage)
    again, _ = train_run(config, Path("again"), quiet=True)
    said = capsys.readouterr().err
    assert "damaged checkpoint skipped" in said
    assert "resumed at step 7" in said
    assert weights(whole) == weights(again)


def test_done_runs_are_not_done_again(config, capsys):
    train_run(config, Path("a"), quiet=True)
    before = weights(Path("a"))
    _, metrics = train_run(config, Path("a"), quiet=True)
    assert "already done" in capsys.readouterr().err
    assert metrics["last"]["step"] == 24
    assert weights(Path("a")) == before


def test_changed_data_is_noticed_on_resume(config, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        kill_at(patch, 9)
        with pytest.raises(Killed):
            train_run(config, Path("a"), quiet=True)
    write_task(tmp_path, seed=5)
    with pytest.raises(
        UserError, match="a holds a run of other data: the source and the target changed since it began"
    ):
        train_run(config, Path("a"), quiet=True)
    write_task(tmp_path, target_labels=False)  # the target's labels are no part of it
    train_run(config, Path("a"), quiet=True)


def test_a_done_run_of_other_data_is_not_returned(config, tmp_path):
    _, before = train_run(config, Path("a"), quiet=True)
    write_task(tmp_path, shuffle=True)  # the target's labels only judge: judged again, and not trained again
    weights_before = weights(Path("a"))
    _, after = train_run(config, Path("a"), quiet=True)
    assert after["last"]["target"]["accuracy"] != before["last"]["target"]["accuracy"]
    assert weights(Path("a")) == weights_before
    write_task(tmp_path, seed=3)
    with pytest.raises(UserError, match="the source and the target changed"):
        train_run(config, Path("a"), quiet=True)
    train_run(config, Path("a"), quiet=True, overwrite=True)
    assert weights(Path("a")) != weights_before


def test_changed_source_labels_or_prior_are_noticed(config):
    Path("p.json").write_text('{"ant": 1, "bee": 1, "cow": 2}')
    train_run(changed(config, class_prior="p.json"), Path("a"), quiet=True)
    Path("p.json").write_text('{"ant": 2, "bee": 1, "cow": 2}')
    with pytest.raises(UserError, match=r"another config: mi\.class_prior .*'ant': 1.*'ant': 2"):
        train_run(changed(config, class_prior="p.json"), Path("a"), quiet=True)
    config = changed(config, class_prior={"ant": 1, "bee": 1, "cow": 2})  # the file's content is what counts
    train_run(config, Path("a"), quiet=True)
    data = np.load("source.npz")
    np.savez("source.npz", x=data["x"], y=data["y"][::-1], classes=data["classes"])
    with pytest.raises(UserError, match="the source changed"):
        train_run(config, Path("a"), quiet=True)


def test_overwriting_the_same_run_resumes_it(config, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        kill_at(patch, 9)
        with pytest.raises(Killed):
            train_run(config, Path("a"), quiet=True, overwrite=True)
    train_run(config, Path("a"), quiet=True, overwrite=True)
    assert "resumed at step 7" in capsys.readouterr().err


def test_when_all_checkpoints_are_damaged_it_starts_anew(config, monkeypatch, capsys):
    whole, _ = train_run(config, Path("whole"), quiet=True)
    with monkeypatch.context() as patch:
        kill_at(patch, 16)
        with pytest.raises(Killed):
            train_run(config, Path("again"), quiet=True)
    for path in Path("again/checkpoints").iterdir():
        path.write_bytes(b"x")
    again, _ = train_run(config, Path("again"), quiet=True)
    assert capsys.readouterr().err.count("damaged checkpoint skipped") == 2
    assert weights(whole) == weights(again)


def test_broken_weights_are_never_saved(config):
    with pytest.raises(UserError, match=r"not finite|is nan at step"):
        train_run(changed(config, steps=1, lr=1e38, source_term="ce", mi=False), Path("a"), quiet=True)
    assert not Path("a/model").exists()
    assert not Path("a/metrics.json").exists()


def test_checkpoints_never_hold_broken_weights(config):
    trainer = make_trainer(make_task(config))
    trainer.step()
    with torch.no_grad():
        trainer.model.head.weight[0, 0] = float("nan")
    with pytest.raises(NotFiniteError, match=r"weights heads\.0\.weight"):
        trainer.state()


def test_dropout_draws_the_same_after_a_restart(config, monkeypatch):
    rng = np.random.default_rng(0)
    for name in ("source", "target"):
        np.savez(f"{name}.npz", x=rng.integers(0, 256, (20, 28, 28), dtype=np.uint8), y=np.arange(20) % 2)
    config = changed(config, network="lenet", bottleneck=None, steps=5, batch_size=8, checkpoint_every=2)
    whole, _ = train_run(config, Path("whole"), quiet=True)
    with monkeypatch.context() as patch:
        kill_at(patch, 3)
        with pytest.raises(Killed):
            train_run(config, Path("again"), quiet=True)
    torch.manual_seed(99)  # as a new process would have it
    again, _ = train_run(config, Path("again"), quiet=True)
    assert weights(whole) == weights(again)


def _edited(state, how):
    if how == "a list":
        return [1, 2]
    if how == "momenta":
        for optimizer in state["optimizers"].values():
            for held in optimizer["state"].values():
                held["momentum_buffer"] = held["momentum_buffer"][..., None]
        return state
    if how == "options":
        for optimizer in state["optimizers"].values():
            optimizer["param_groups"][0]["momentum"] = "x"
        return state
    return {key: value for key, value in state.items() if key != how} | ({how: 10**9} if how == "step" else {})


@pytest.mark.parametrize("how", ["a list", "step", "model", "objective", "optimizers", "momenta", "options"])
def test_a_checkpoint_with_a_valid_digest_and_wrong_content_is_passed_over(config, how, monkeypatch, capsys):
    whole, _ = train_run(config, Path("whole"), quiet=True)
    with monkeypatch.context() as patch:
        kill_at(patch, 16)
        with pytest.raises(Killed):
            train_run(config, Path("again"), quiet=True)
    for path in Path("again/checkpoints").iterdir():  # all of them: a state loaded in part must leave no trace
        state = _edited(torch.load(io.BytesIO(path.read_bytes()[32:]), weights_only=True), how)
        buffer = io.BytesIO()
        torch.save(state, buffer)
        path.write_bytes(hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue())
    again, _ = train_run(config, Path("again"), quiet=True)
    said = capsys.readouterr().err
    assert said.count("damaged checkpoint skipped") == 2
    assert "resumed" not in said
    assert weights(whole) == weights(again)


def test_a_pipe_or_a_folder_among_checkpoints_is_passed_over(config, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        kill_at(patch, 16)
        with pytest.raises(Killed):
            train_run(config, Path("again"), quiet=True)
    os.mkfifo("again/checkpoints/step-000000021.pt")
    Path("again/checkpoints/step-000000020.pt").mkdir()
    train_run(config, Path("again"), quiet=True)
    said = capsys.readouterr().err
    assert said.count("damaged checkpoint skipped") == 2
    assert "resumed at step 14" in said


@pytest.mark.parametrize("line", ['{"step": "x"}', "[]", "null", "{", "[" * 100_000, '{"loss": 1}', "\udcff"])
def test_damaged_lines_of_the_records_are_named_and_left_out(config, line, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        kill_at(patch, 17)
        with pytest.raises(Killed):
            train_run(config, Path("a"), quiet=True)
    records = Path("a/records.jsonl")
    lines = records.read_text().splitlines()
    lines[1] = line
    records.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    train_run(config, Path("a"), quiet=True)
    assert "a/records.jsonl is damaged: 1 line left out" in capsys.readouterr().err
    assert [json.loads(text)["step"] for text in records.read_text().splitlines()] == [1, 10, 15, 20, 24]


def test_a_pipe_in_place_of_the_records_is_replaced(config, monkeypatch):
    with monkeypatch.context() as patch:
        kill_at(patch, 17)
        with pytest.raises(Killed):
            train_run(config, Path("a"), quiet=True)
    Path("a/records.jsonl").unlink()
    os.mkfifo("a/records.jsonl")
    train_run(config, Path("a"), quiet=True)
    assert Path("a/records.jsonl").is_file()


@pytest.mark.parametrize("file", ["step-000000008.npz", "test-000000008.safetensors"])
def test_damaged_predictions_of_a_stopped_run_are_named(config, file, monkeypatch, tmp_path):
    data = np.load("target.npz")
    split = {f"{part}_{key}": data[key] for part in ("train", "test") for key in "xy"}
    np.savez("target.npz", **split, classes=data["classes"])
    config = changed(config, candidates=3)
    with monkeypatch.context() as patch:
        kill_at(patch, 23)
        with pytest.raises(Killed):
            train_run(config, Path("a"), quiet=True)
    Path("a/predictions", file).write_bytes(b"damaged")
    with pytest.raises(UserError, match=rf"{file} cannot be read: .* Remove a, and run the same command again\."):
        train_run(config, Path("a"), quiet=True)
