"""A trained model in Python: fit and load, and predictions for all that one may have in hand."""

import csv
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from tests.configs import changed
from tests.photos import CLASSES, truncate
from tests.runs.killing import Killed, kill_at, weights
from tests.tasks import runs_in

import tsadapt
from tsadapt.cli import main
from tsadapt.data.in_memory import as_dataset
from tsadapt.data.types import Dataset
from tsadapt.errors import UserError
from tsadapt.runs.fit import train_run
from tsadapt.selection.logits import FactoredLogits

KNOWN = {
    "tsa": True,
    "steps": 24,
    "batch_size": 16,
    "bottleneck": 8,
    "lr": 0.05,
    "device": "cpu",
    "checkpoint_every": 7,
}
NAMES = [f"f{i}" for i in range(6)]


@pytest.fixture
def model(config):
    run, _ = train_run(config, Path("run"), quiet=True)
    return tsadapt.load(run)


@pytest.fixture
def photos(frozen):
    run, _ = train_run(frozen, Path("run"), quiet=True)
    return tsadapt.load(str(run))


@pytest.fixture
def arrays(here):
    """Source rows, their labels in words, and target rows."""
    source, target = np.load("source.npz"), np.load("target.npz")
    return source["x"], source["classes"][source["y"]], target["x"]


def frame(x, labels=None):
    made = pd.DataFrame(x, columns=NAMES)
    return made if labels is None else made.assign(label=labels)


def by_command(run, data):
    """Class and probabilities of every row, as `tsadapt predict` writes them."""
    assert main(["predict", str(run), str(data), "--out", "p.csv", "--probabilities"]) == 0
    rows = [*csv.DictReader(Path("p.csv").read_text().splitlines())]
    shares = [[float(row[key] or "nan") for key in row if key.startswith("p(")] for row in rows]
    return [row["class"] for row in rows], np.array(shares)


def test_vectors_from_a_path_an_array_and_a_tensor(model):
    x = np.load("target.npz")["x"]
    expected = model.predict("target.npz")
    assert expected.shape == (120,)
    assert set(expected) <= {"ant", "bee", "cow"}
    assert (expected == np.array(["ant", "bee", "cow"])[np.load("target.npz")["y"]]).mean() > 0.8
    for same in (Path("target.npz"), x, x.astype(np.float32), torch.from_numpy(x), (x, None)):
        assert np.array_equal(model.predict(same), expected)
    shares = model.predict_proba(x)
    assert shares.shape == (120, 3)
    assert np.allclose(shares.sum(1), 1)
    assert np.array_equal(np.array(model.classes)[shares.argmax(1)], expected)
    assert model.transform(x).shape == (120, 8)
    assert np.array_equal(model.predict(x[:1]), expected[:1])
    with pytest.raises(UserError, match="5 features per row, expected 6"):
        model.predict(x[:, :5])


def test_the_command_line_predicts_the_same(model):
    guess, shares = by_command("run", "target.npz")
    assert guess == model.predict("target.npz").tolist()
    assert np.allclose(shares, model.predict_proba("target.npz"), atol=1e-5)


def test_tables_are_taken_by_their_columns(arrays):
    x_s, labels, x_t = arrays
    frame(x_s, labels).to_csv("s.csv", index=False)
    frame(x_t).to_csv("t.csv", index=False)
    by_file = tsadapt.fit("s.csv", "t.csv", out="a", **KNOWN)
    by_frame = tsadapt.fit(frame(x_s, labels), frame(x_t), out="b", **KNOWN)
    expected = by_file.predict("t.csv")
    assert by_file.columns == by_frame.columns == tuple(NAMES)
    for found in (by_frame.predict("t.csv"), by_frame.predict(frame(x_t)), by_file.predict(frame(x_t))):
        assert np.array_equal(found, expected)
    shuffled = frame(x_t)[NAMES[::-1]]
    assert np.array_equal(by_file.predict(shuffled), expected)
    assert np.array_equal(tsadapt.load("b").predict(shuffled), expected)
    assert by_command("b", "t.csv")[0] == expected.tolist()
    with pytest.raises(UserError, match="f5"):
        by_file.predict(frame(x_t).drop(columns="f5"))
    with pytest.raises(UserError, match="Unexpected: more"):
        by_file.predict(frame(x_t).assign(more=1.0))


def test_fit_with_arrays_is_the_run_of_the_files(arrays, config):
    """The same bits as from .npz files."""
    x_s, labels, x_t = arrays
    model = tsadapt.fit((x_s, labels), x_t, out="a", **KNOWN)
    train_run(config, Path("b"), quiet=True)
    assert weights(Path("a")) == weights(Path("b"))
    written = json.loads(Path("a/metrics.json").read_text())
    assert model.metrics == {key: value for key, value in written.items() if key != "sha256"}
    assert "accuracy" not in model.metrics["last"]["target"]
    assert 'source = "memory:' in Path("a/config.toml").read_text()
    assert np.array_equal(model.predict(x_t), tsadapt.load("a").predict(x_t))


def test_the_same_call_finds_a_run_done_or_resumes_it(arrays, capsys, monkeypatch):
    x_s, labels, x_t = arrays

    def fit(**more):
        return tsadapt.fit((x_s.copy(), labels.copy()), x_t.copy(), **KNOWN, **more)

    with monkeypatch.context() as patch:
        kill_at(patch, 17)
        with pytest.raises(Killed):
            fit()
    (run,) = runs_in("runs")
    assert not (run / "metrics.json").exists()
    model = fit()
    assert "resumed at step 14" in capsys.readouterr().err
    assert model.run.path == run
    fit()
    assert "already done" in capsys.readouterr().err
    assert runs_in("runs") == [run]
    fit(out="whole")
    assert weights(Path("whole")) == weights(run)
    with pytest.raises(UserError, match="lambda0"):
        fit(out="whole", lambda0=0.5)
    fit(out="whole", lambda0=0.5, overwrite=True)
    assert weights(Path("whole")) != weights(run)
    x_t[0] += 1  # other data are another run
    fit()
    assert len(runs_in("runs")) == 2


def test_fit_takes_the_words_of_the_command(here, capsys):
    words = ["--tsa", "--method", "cdan+e", "--lambda0", "0.5", "--no-mean-shift", "--term-weight", "domain=0.5"]
    short = ["--steps", "24", "--batch-size", "16", "--bottleneck", "8", "--lr", "0.05", "--device", "cpu", "--quiet"]
    assert main(["fit", "source.npz", "target.npz", *words, *short, "--out", "a"]) == 0
    more = {"method": "cdan+e", "lambda0": 0.5, "mean_shift": False, "term_weight": {"domain": 0.5}}
    tsadapt.fit("source.npz", "target.npz", out="a", **more, **{k: v for k, v in KNOWN.items() if "check" not in k})
    assert "already done" in capsys.readouterr().err
    with pytest.raises(UserError, match="Did you mean 'lambda0'"):
        tsadapt.fit("source.npz", "target.npz", lamda0=0.5)
    tsadapt.fit("source.npz", "target.npz", out="b", beta=3, **{**KNOWN, "tsa": False})
    assert "beta is not used" in capsys.readouterr().err


def test_photographs_from_a_folder_files_and_images(photos):
    files = sorted(Path("new").iterdir())
    expected = photos.predict("new")
    shares = photos.predict_proba("new")
    assert expected.shape == (24,)
    assert set(expected) <= set(CLASSES)
    assert len({tuple(row) for row in shares.tolist()}) == 24
    for same in (files, [*map(str, files)], files[:3]):
        assert np.array_equal(photos.predict(same), expected[: len(same)])
    for i in (0, 9, 23):
        for one in (files[i], str(files[i]), Image.open(files[i])):
            assert photos.predict(one).tolist() == [expected[i]]
            assert np.allclose(photos.predict_proba(one), shares[i : i + 1], atol=1e-4)
    assert np.allclose(photos.transform(files[4]), photos.transform("new")[4:5], atol=1e-4)
    guess, by_line = by_command("run", "new")
    assert guess == expected.tolist()
    assert np.allclose(by_line, shares, atol=1e-4)


@pytest.mark.parametrize("freeze", [True, False])
def test_an_image_that_cannot_be_read_has_no_class(frozen, freeze):
    run, _ = train_run(changed(frozen, freeze_backbone=freeze), Path("run"), quiet=True)
    model = tsadapt.load(run)
    before = model.predict_proba("new")
    files = sorted(Path("new").iterdir())
    for i in (3, 11):
        truncate(files[i])
    with pytest.warns(UserWarning, match=r"2 images cannot be read.*truncated"):
        found = model.predict("new")
    assert [i for i, name in enumerate(found) if name == ""] == [3, 11]
    with pytest.warns(UserWarning, match="2 images"):
        shares = model.predict_proba(files)
    assert np.flatnonzero(np.isnan(shares).any(1)).tolist() == [3, 11]
    others = [i for i in range(24) if i not in (3, 11)]
    assert np.allclose(shares[others], before[others], atol=1e-5)
    assert np.array_equal(found[others], np.array(model.classes)[before[others].argmax(1)])
    with pytest.warns(UserWarning, match="2 images"):
        assert np.isnan(model.transform("new")[[3, 11]]).all()
    guess, by_line = by_command(run, "new")
    assert guess == found.tolist()
    assert np.allclose(by_line, shares, atol=1e-4, equal_nan=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict([files[i] for i in others])  # no warning where all is well
    with pytest.raises(UserError, match="None of the 1 images"):
        model.predict(files[3])


def test_what_cannot_be_loaded_is_one_line(model, here):
    for path, said in (("nowhere", "No run at nowhere"), ("empty", "No trained model in empty")):
        Path("empty").mkdir(exist_ok=True)
        with pytest.raises(UserError, match=said):
            tsadapt.load(path)
    with pytest.raises(UserError, match="--candidates"):
        tsadapt.load("run", use="selected")
    with pytest.raises(UserError, match="trained on feature vectors"):
        model.predict(np.zeros((3, 8, 8), dtype=np.uint8))
    Path("run/model/model.json").unlink()
    with pytest.raises(UserError, match="run the same fit command again"):
        tsadapt.load("run")


def test_a_loaded_model_is_moved_whole(model, here, monkeypatch):
    """A run's folder can be moved: nothing in it points elsewhere."""
    expected = model.predict_proba("target.npz")
    Path("run").rename("moved")
    Path("source.npz").unlink()
    assert np.array_equal(tsadapt.load("moved").predict_proba("target.npz"), expected)


@pytest.mark.parametrize("method", ["source-only", "jada"])
def test_logits_too_many_for_a_table_are_kept_as_factors(config, monkeypatch, method):
    """One head and two: the same metrics, choice and predictions."""
    config = changed(config, method=method, holdout=0.2, candidates=2)
    _, whole = train_run(config, Path("whole"), quiet=True)
    _, shares = by_command("whole", "target.npz")
    monkeypatch.setattr("tsadapt.runs.model.MOST_CELLS", 0)
    monkeypatch.setattr("tsadapt.selection.logits.BLOCK_CELLS", 100)
    _, factored = train_run(config, Path("factored"), quiet=True)
    model = tsadapt.load("factored")
    assert isinstance(model.outputs("target.npz").logits, FactoredLogits)
    assert np.allclose(model.predict_proba("target.npz"), shares, atol=1e-5)
    assert np.allclose(by_command("factored", "target.npz")[1], shares, atol=1e-5)
    for part in ("source", "target"):
        found, expected = factored["last"][part], whole["last"][part]
        assert found.pop("calibration_error") == pytest.approx(expected.pop("calibration_error"), abs=1e-6)
        assert found == expected
    assert factored["selected"]["step"] == whole["selected"]["step"]
    assert factored["oracle"] == whole["oracle"]


def test_candidates_on_a_test_split_are_kept_as_factors(here, monkeypatch):
    monkeypatch.setattr("tsadapt.runs.model.MOST_CELLS", 0)
    settings = {"candidates": 2, "steps": 4, "batch_size": 16, "quiet": True}
    with np.load("target.npz") as target:
        x, y = target["x"], target["y"]
    split = Dataset(as_dataset((x[:80], y[:80])).train, as_dataset((x[80:], y[80:])).train)
    source = np.load("source.npz")
    model = tsadapt.fit((source["x"], source["y"]), split, out="run", **settings)
    assert model.metrics["selected"]["target"]["rows"] == 40
    last = model.metrics["last"]["target"]["accuracy"]
    assert model.metrics["oracle"]["by_step"]["4"] == last
