"""Held-out source rows, and the steps of a run that validators choose among."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.configs import changed
from tests.tasks import write_task

from tsadapt.cli import main
from tsadapt.data.holdout import hold_out
from tsadapt.data.types import Dataset, Domain
from tsadapt.errors import UserError
from tsadapt.runs.candidates import candidate_steps
from tsadapt.runs.fit import Interrupted, train_run
from tsadapt.runs.folder import RunFolder
from tsadapt.runs.model import load
from tsadapt.runs.records import read_records
from tsadapt.selection.predictions import Predictions
from tsadapt.training import setup as tasks
from tsadapt.training.setup import make_task, make_trainer


def predictions_file(run, step):
    return RunFolder(run).predictions_file(step)


def read(run, step):
    return Predictions.read(predictions_file(run, step))


def weights(run, part="model"):
    return (run / part / "model.safetensors").read_bytes()


def test_hold_out_is_stratified_and_a_function_of_the_seed():
    y = torch.tensor([0] * 50 + [1] * 20 + [2] * 2 + [3])
    domain = Domain("pets", torch.arange(73.0)[:, None], y, ("ant", "bee", "cow", "dog"))
    train, held = hold_out(domain, 0.1, seed=3)
    assert torch.bincount(held.y, minlength=4).tolist() == [5, 2, 1, 0]
    assert sorted(train.tensor[:, 0].tolist() + held.tensor[:, 0].tolist()) == list(range(73))
    assert torch.equal(hold_out(domain, 0.1, seed=3)[1].tensor, held.tensor)
    assert not torch.equal(hold_out(domain, 0.1, seed=4)[1].tensor, held.tensor)
    with pytest.raises(UserError, match="one row per class"):
        hold_out(Domain("pets", torch.zeros(2, 1), torch.tensor([0, 1]), ("ant", "bee")), 0.1, seed=0)


def test_held_out_rows_are_in_no_batch_and_in_no_memory(config):
    task = make_task(changed(config, holdout=0.25))
    held = {tuple(row) for row in task.held.tensor.tolist()}
    assert len(task.source.train) + len(held) == 120
    assert task.source.test is task.held
    trainer = make_trainer(task)
    trainer.fill_memory()
    assert trainer.statistics.of("source", "memory", 0).features.shape[0] == len(task.source.train)
    for step in range(1, 30):
        assert not held & {tuple(row) for row in trainer.batches.at(step).x_s.tolist()}


def test_the_steps_of_candidates(config):
    assert candidate_steps(changed(config, steps=24, candidates=1)) == [24]
    assert candidate_steps(changed(config, steps=24, candidates=4)) == [6, 12, 18, 24]
    assert candidate_steps(changed(config, steps=2, candidates=5)) == [1, 2]


def test_every_run_keeps_its_last_predictions(config):
    run, metrics = train_run(changed(config, holdout=0.2), quiet=True)
    p = read(run, 24)
    assert len(p.labels_v) == 24
    assert p.features_s.shape == (96, 8)
    assert p.logits_t.shape == (120, 3)
    assert p.weight.shape == (1, 3, 8)
    assert len(p.mixed.logits) == len(p.mixed.a) > 100
    assert "selected" not in metrics
    without = read(train_run(config, quiet=True)[0], 24)
    assert len(without.labels_v) == 0
    assert np.array_equal(without.features_v.shape, (0, 8))


def test_candidates_are_scored_selected_and_judged(config):
    run, metrics = train_run(changed(config, holdout=0.2, candidates=3), quiet=True)
    scores = read_records(run / "predictions" / "scores.jsonl")
    assert [line["step"] for line in scores] == [8, 16, 24]
    assert all(np.isfinite(line["dev"]) and "im" in line for line in scores)
    accuracies = metrics["oracle"]["by_step"]
    assert metrics["oracle"]["accuracy"] == max(accuracies.values())
    assert accuracies["24"] == metrics["last"]["target"]["accuracy"]
    selected = metrics["selected"]
    assert selected["target"]["accuracy"] == accuracies[str(selected["step"])]
    assert sorted(path.name for path in (run / "candidates").iterdir()) == ["step-000000008", "step-000000016"]
    model = load(run, "selected").network
    with torch.no_grad():
        logits = model(torch.from_numpy(np.load("target.npz")["x"]).float())[1].numpy()
    assert np.allclose(logits, read(run, selected["step"]).logits_t, atol=1e-5)
    # They are no part of the training.
    assert weights(run) == weights(train_run(changed(config, holdout=0.2), quiet=True)[0])


def test_a_stopped_run_makes_the_same_candidates(config, monkeypatch):
    config = changed(config, candidates=4, holdout=0.2)
    whole, metrics = train_run(config, Path("whole"), quiet=True)

    def stop_at(trainer):
        if trainer.at == 15:
            raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, Interrupted)):
        train_run(config, Path("parts"), quiet=True, watch=stop_at)
    parts, again = train_run(config, Path("parts"), quiet=True)
    assert again == metrics
    for step in (6, 12, 18, 24):
        assert predictions_file(parts, step).read_bytes() == predictions_file(whole, step).read_bytes()
    assert (parts / "predictions/scores.jsonl").read_text() == (whole / "predictions/scores.jsonl").read_text()
    assert weights(parts, "candidates/step-000000012") == weights(whole, "candidates/step-000000012")


def test_target_labels_change_nothing(config, tmp_path):
    config = changed(config, candidates=3, holdout=0.2)
    run, metrics = train_run(config, Path("a"), quiet=True)
    write_task(tmp_path, shuffle=True)
    other, shuffled = train_run(config, Path("b"), quiet=True)
    write_task(tmp_path, target_labels=False)
    none, unlabelled = train_run(config, Path("c"), quiet=True)
    assert metrics["selected"]["step"] == shuffled["selected"]["step"] == unlabelled["selected"]["step"]
    assert metrics["oracle"] != shuffled["oracle"]
    assert "oracle" not in unlabelled
    for step in (8, 16, 24):
        files = {predictions_file(folder, step).read_bytes() for folder in (run, other, none)}
        assert len(files) == 1


def test_a_target_with_a_test_part_of_its_own(config, monkeypatch):
    """Validators look at the rows that were trained on; labels of the test part judge."""
    opened = tasks.open_dataset

    def with_test(name, *args, **more):
        data = opened(name, *args, **more)
        return Dataset(data.train, data.train.keep(list(range(30)))) if Path(name).name == "target.npz" else data

    monkeypatch.setattr(tasks, "open_dataset", with_test)
    run, metrics = train_run(changed(config, candidates=2), quiet=True)
    assert read(run, 12).logits_t.shape == (120, 3)
    assert metrics["last"]["target"]["rows"] == 30
    truth = np.load("target.npz")["y"]
    for step, accuracy in metrics["oracle"]["by_step"].items():
        assert accuracy == pytest.approx((read(run, int(step)).guess_t == truth)[:30].mean())


def test_a_target_of_few_classes_has_a_selected_step_too(config, tmp_path):
    """Every step looks collapsed where a target has one of ten classes: the last one is taken, and it is said."""
    names = tuple("abcdefghij")
    write_task(tmp_path, n=200, names=names, target_labels=False, counts=[60] + [0] * 9)
    run, metrics = train_run(changed(config, candidates=3, steps=150, source_term="ce", mi=False), quiet=True)
    assert metrics["selected"]["step"] == 150
    assert "last step" in metrics["selected"]["why"]
    assert load(run, "selected").metrics["selected"]["step"] == 150


def test_runs_of_an_older_version_keep_their_names(config):
    """Settings that came later are no part of a hash while they are at their default."""
    assert changed(config, holdout=0.0, candidates=1).hash() == config.hash()
    assert changed(config, holdout=0.1).hash() != config.hash()
    assert changed(config, candidates=2).hash() != config.hash()


def test_predict_with_the_selected_model(config, capsys):
    words = ["fit", "source.npz", "target.npz", "--tsa", "--steps", "20", "--bottleneck", "8", "--quiet", "--out"]
    assert main([*words, "one"]) == 0
    assert main([*words, "many", "--candidates", "4", "--holdout", "0.1"]) == 0
    out = capsys.readouterr().out
    assert "selected by consensus, step" in out
    assert "oracle (best by target labels)" in out
    assert main(["predict", "many", "target.npz", "--use", "selected", "--out", "p.csv"]) == 0
    assert main(["evaluate", "many", "target.npz", "--use", "selected", "--out", "e.json"]) == 0
    selected = json.loads(Path("many/metrics.json").read_text())["selected"]["target"]["accuracy"]
    assert json.loads(Path("e.json").read_text())["accuracy"] == pytest.approx(selected)
    capsys.readouterr()
    assert main(["predict", "one", "target.npz", "--use", "selected"]) == 2
    assert "--candidates 5" in capsys.readouterr().err


def test_more_candidates_than_steps_are_all_steps(config):
    assert candidate_steps(changed(config, steps=4, candidates=10**9)) == [1, 2, 3, 4]
    assert candidate_steps(changed(config, steps=7, candidates=5)) == [1, 3, 4, 6, 7]
