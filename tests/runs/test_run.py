import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.configs import changed
from tests.runs.killing import weights
from tests.tasks import write_task

from tsadapt.errors import UserError
from tsadapt.models.networks import build
from tsadapt.runs.fit import train_run
from tsadapt.runs.folder import RunFolder
from tsadapt.training.setup import make_task, make_trainer
from tsadapt.training.trainer import Trainer

TERMS = [
    {},
    {"source_term": "ce", "mi": False},
    {"source_term": "ce", "mi": True},
    {"source_term": "isda", "mi": False},
    {"source_term": "sampled", "samples": 3},
]


@pytest.mark.parametrize("change", TERMS, ids=str)
def test_target_labels_change_nothing(config, change, tmp_path):
    config = changed(config, **change)
    found = []
    for i, labels in enumerate(({}, {"shuffle": True}, {"target_labels": False})):
        write_task(tmp_path, **labels)
        run, metrics = train_run(config, Path(f"run{i}"), quiet=True)
        found.append(weights(run))
        assert ("accuracy" in metrics["last"]["target"]) == (i < 2)
    assert found[0] == found[1] == found[2]


def test_source_only_never_sees_the_target(config, tmp_path):
    """Not even its batch normalisation: another target gives the same bits."""
    config = changed(config, source_term="ce", mi=False)
    first, _ = train_run(config, Path("a"), quiet=True)
    labels = np.load("target.npz")
    np.savez("target.npz", x=100 * labels["x"], y=labels["y"], classes=labels["classes"])
    second, _ = train_run(config, Path("b"), quiet=True)
    assert weights(first) == weights(second)
    with_mi = changed(config, mi=True)
    assert weights(train_run(with_mi, Path("c"), quiet=True)[0]) != weights(first)


def test_zero_strength_is_cross_entropy_with_the_target_forwarded(config):
    tsa, _ = train_run(changed(config, lambda0=0.0), Path("a"), quiet=True)
    mi, _ = train_run(changed(config, source_term="ce"), Path("b"), quiet=True)
    assert weights(tsa) == weights(mi)


def test_adaptation_helps_and_everything_is_written(config):
    run, metrics = train_run(changed(config, steps=200), None, quiet=True)
    assert run.parent == Path("runs")
    assert metrics["last"]["target"]["accuracy"] > 0.8
    assert metrics["last"]["target"]["split"] == "all"
    assert set(metrics["last"]["source"]["per_class_accuracy"]) == {"ant", "bee", "cow"}
    names = {path.name for path in run.iterdir()}
    assert names == {
        "config.toml",
        "manifest.json",
        "records.jsonl",
        "metrics.json",
        "checkpoints",
        "model",
        "predictions",
    }
    record = json.loads((run / "records.jsonl").read_text().splitlines()[-1])
    expected = {"tsa", "mi", "loss", "lambda", "pseudo_label_share", "classes_without_pseudo_labels", "shift_norm"}
    assert expected | {"class_spread", "shift_term", "variance_term", "logit_size", "lr"} <= set(record)
    assert record["lambda"] == pytest.approx(0.25)
    text = (run / "model" / "model.json").read_text() + (run / "manifest.json").read_text()
    assert str(Path.cwd()) not in text


def test_another_config_is_refused_by_its_keys(config):
    train_run(config, Path("a"), quiet=True)
    other = changed(config, lr=0.01, seed=3)
    with pytest.raises(UserError, match=r"another config: lr \(there 0.05, here 0.01\), seed \(there 0, here 3\)"):
        train_run(other, Path("a"), quiet=True)
    Path("a/notes.txt").write_text("mine")
    train_run(other, Path("a"), overwrite=True, quiet=True)
    assert "seed = 3" in Path("a/config.toml").read_text()
    assert Path("a/notes.txt").read_text() == "mine"  # only the run's own files go
    train_run(changed(other, checkpoint_every=3), Path("a"), quiet=True)  # how, not what


def test_a_folder_of_something_else_is_left_alone(config):
    Path("docs").mkdir()
    Path("docs/thesis.tex").write_text("x")
    with pytest.raises(UserError, match="is not empty and holds no run"):
        train_run(config, Path("docs"), quiet=True)
    with pytest.raises(UserError, match="is a file, expected a folder"):
        train_run(config, Path("source.npz"), quiet=True)


def test_a_term_that_is_not_finite_stops_the_run_by_name(config):
    with pytest.raises(UserError, match=r"The term '(tsa|mi|weights .*)' is (nan|inf) at step \d+") as error:
        train_run(changed(config, lr=1e18, steps=60, checkpoint_every=1), Path("a"), quiet=True)
    assert str(Path("a/checkpoints")) in str(error.value)
    assert not Path("a/metrics.json").exists()


def test_a_class_only_the_target_has_is_an_error_and_named(config, capsys):
    target = np.load("target.npz")
    np.savez("target.npz", x=target["x"], y=target["y"], classes=np.array(["ant", "emu", "cow"]))
    _, metrics = train_run(changed(config, steps=150), Path("a"), quiet=True)
    assert "only in the target: emu" in capsys.readouterr().err
    said = metrics["last"]["target"]
    assert said["unknown_classes"] == ["emu"]
    assert said["unknown_rows"] == 40
    assert said["accuracy"] <= 2 / 3 + 1e-9
    assert said["mean_class_accuracy"] <= 2 / 3 + 1e-9


def test_class_prior_helps_on_an_uneven_target(config, tmp_path, capsys):
    write_task(tmp_path, counts=[100, 10, 10])
    config = changed(config, source_term="ce", beta=1.0, steps=150)
    _, uniform = train_run(config, Path("uniform"), quiet=True)
    Path("prior.json").write_text(json.dumps({"ant": 10, "bee": 1, "cow": 1}))
    _, known = train_run(changed(config, class_prior="prior.json"), Path("known"), quiet=True)
    a, b = (m["last"]["target"]["accuracy"] for m in (uniform, known))
    assert b > a
    assert "the objective favours equal shares" in capsys.readouterr().err or a > 0.95
    for wrong, message in (
        ("nowhere.json", "nowhere.json.*expected uniform, source, estimated, or a JSON file"),
        ("bad.json", "bee, cow: expected one for every class"),
    ):
        Path("bad.json").write_text('{"ant": 1}')
        with pytest.raises(UserError, match=message):
            train_run(changed(config, class_prior=wrong), Path("x"), quiet=True)


def test_an_estimated_class_prior_helps_on_an_uneven_target_and_survives_a_restart(config, tmp_path, capsys):
    write_task(tmp_path, counts=[100, 10, 10])
    config = changed(config, source_term="ce", beta=1.0, steps=150, target_terms=("mi", "mcc"))
    _, uniform = train_run(config, Path("uniform"), quiet=True)
    capsys.readouterr()
    estimated = changed(config, class_prior="estimated", checkpoint_every=50)
    folder, metrics = train_run(estimated, Path("estimated"), quiet=True)
    assert metrics["last"]["target"]["accuracy"] > uniform["last"]["target"]["accuracy"]
    said = capsys.readouterr().err
    assert said.count("Class shares of the target, estimated: ant") == 1  # of two terms
    assert "of all rows are ant" in said
    trainer = make_trainer(make_task(estimated))
    for _ in trainer.loop():
        pass
    prior = trainer.objective.target_terms[0].prior
    assert prior.sum().item() == pytest.approx(1)
    assert prior[0] > 0.6
    again = make_trainer(make_task(estimated))
    again.load(trainer.state())
    assert all(torch.equal(term.prior, prior) for term in again.objective.target_terms)
    saved = RunFolder(folder).predictions_file(150)
    before = saved.read_bytes()
    RunFolder(folder).metrics_file.unlink()
    shutil.rmtree(RunFolder(folder).checkpoints)
    saved.unlink()
    train_run(estimated, Path("estimated"), quiet=True)  # from the beginning, and to the same end
    assert saved.read_bytes() == before


def test_an_uneven_source_is_noted(config, capsys):
    y = np.array([0] * 110 + [1] * 5 + [2] * 5)
    source = np.load("source.npz")
    np.savez("source.npz", x=source["x"], y=y, classes=source["classes"])
    train_run(config, Path("a"), quiet=True)
    assert "--class-prior source" in capsys.readouterr().err
    config = changed(config, class_prior="source")
    (mi,) = make_trainer(make_task(config)).objective.target_terms
    torch.testing.assert_close(mi.prior, torch.tensor([110, 5, 5]) / 120)
    train_run(config, Path("b"), quiet=True)
    assert "--class-prior source" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "target-only.npz"}, "has no labels. Did you swap source and target"),
        ({"target": "wide.npz"}, "6 features per row and the target 7"),
        ({"target": "digits:uci"}, "source contains feature vectors and the target images"),
        ({"network": "lenet"}, "does not take feature vectors"),
        ({"network": "mlpp"}, "Did you mean 'mlp'"),
        ({"method": "dannn"}, "Did you mean 'dann'"),
        ({"lr": float("nan")}, "lr is nan, expected a finite number"),
        ({"device": "cuda:9"}, "Device 'cuda:9' cannot be used here"),
    ],
)
def test_mistakes_are_explained_and_leave_nothing(config, change, message):
    np.savez("target-only.npz", x=np.zeros((5, 6)))
    np.savez("wide.npz", x=np.zeros((5, 7)))
    with pytest.raises(UserError, match=message):
        train_run(changed(config, **change), Path("a"), quiet=True)


def test_memory_fill_leaves_the_network_as_it_was(config):
    trainer = make_trainer(make_task(config))
    before = {k: v.clone() for k, v in trainer.model.state_dict().items()}
    trainer.fill_memory()
    assert all(torch.equal(v, before[k]) for k, v in trainer.model.state_dict().items())
    source, target = (trainer.statistics.of(domain, "memory", 0) for domain in ("source", "target"))
    assert source.count[:-1].sum() == target.count[:-1].sum() == 120
    # Batch statistics: the features of fresh normalisation layers are normalised before the ReLU.
    assert 0.3 < target.features.mean() < 0.5


def test_training_refuses_target_labels(config):
    task = make_task(config)
    with pytest.raises(ValueError, match="no place in training"):
        Trainer(task.config, build(task.architecture), task.source.train, task.target.train)


def test_tensorboard(config):
    run, _ = train_run(config, Path("a"), quiet=True, tensorboard=True)
    assert any((run / "tensorboard").iterdir())


@pytest.mark.parametrize("change", [{"mean_shift": False}, {"covariance": "none"}], ids=str)
def test_ablations_of_the_sampled_loss_are_real(config, change):
    config = changed(config, source_term="sampled", lambda0=1.0)
    full, _ = train_run(config, Path("full"), quiet=True)
    less, _ = train_run(changed(config, **change), Path("less"), quiet=True)
    assert weights(full) != weights(less)
    told = []
    isda = changed(config, source_term="isda")
    assert changed(isda, told.append, **change) == isda  # the ablations are TSA's
    assert "a setting of sampled, t" in told[0]


def test_large_seeds_and_tiny_targets(config):
    np.savez("target.npz", x=np.load("target.npz")["x"][:1])
    _, metrics = train_run(changed(config, seed=2**40), Path("a"), quiet=True)
    assert metrics["last"]["proxy_a_distance"] is None
    json.loads(Path("a/metrics.json").read_text())


def test_mistakes_leave_the_folder_free(config):
    with pytest.raises(UserError, match="Unknown method"):
        train_run(changed(config, method="danm"), Path("a"), quiet=True)
    with pytest.raises(UserError, match="batch size of at least 2"):
        train_run(changed(config, batch_size=1), Path("a"), quiet=True)
    assert not Path("a").exists()
    Path("a").mkdir()
    Path("a/.config.toml.x7").write_text("")  # killed while it was written
    train_run(config, Path("a"), quiet=True)


def test_two_processes_do_not_train_one_run(config, tmp_path):
    out, _ = train_run(changed(config, steps=4), tmp_path / "run", quiet=True)
    program = (
        "import sys, time; from pathlib import Path; from tsadapt.runs.folder import RunFolder\n"
        "with RunFolder(Path(sys.argv[1])).lock(): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(out)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="another process"):
            train_run(changed(config, steps=4), out, quiet=True)
        other.kill()
    train_run(changed(config, steps=4), out, quiet=True)  # however it ended, the folder is free again
