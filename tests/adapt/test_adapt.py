import csv
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from tests.photos import SHORT, TINY, write_classes, write_flat

import tsadapt
from tsadapt.adapt import adapt
from tsadapt.cli import main
from tsadapt.errors import UserError
from tsadapt.report.collect import collect

FEW = {"steps": 60, "portfolio": ("adabn", "paper")}


def two_domains(seed=0, n=120):
    """Three classes in eight dimensions; the target is shifted."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    centres = 3 * rng.normal(size=(3, 8))
    x_s, x_t = (centres[y] + rng.normal(size=(n, 8)) for _ in range(2))
    return x_s.astype(np.float32), np.array(["ant", "bee", "cow"])[y], (x_t + 0.8).astype(np.float32), y


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapt")
    x_s, y_s, x_t, y_t = two_domains()
    labels = folder / "few.csv"
    labels.write_text("".join(f"{row},{['ant', 'bee', 'cow'][y_t[row]]}\n" for row in range(0, 120, 6)))
    made = adapt((x_s, y_s), x_t, out=folder / "result", target_labels=labels, command="tsadapt adapt …", **FEW)
    return made, folder, labels


def test_everything_is_there(result):
    _, folder, _ = result
    assert {path.name for path in (folder / "result").iterdir()} >= {
        "report.html", "predictions.csv", "summary.json", "model", "runs", "choice.json",
    }  # fmt: skip
    summary = json.loads((folder / "result" / "summary.json").read_text())
    estimate = summary["estimated_accuracy"]
    assert 0 <= estimate["low"] <= estimate["value"] <= estimate["high"] <= 1
    assert {*summary["class_shares"]} == {"ant", "bee", "cow"}
    for share in summary["class_shares"].values():
        assert 0 <= share["low"] <= share["value"] <= share["high"] <= 1
    assert {one["candidate"] for one in summary["candidates"]} == {"source-only", "adabn", "paper"}
    assert summary["chosen"]["why"]
    assert summary["command"] == "tsadapt adapt …"
    assert summary["versions"]["torch"]


def test_a_line_for_every_row(result):
    _, folder, _ = result
    with (folder / "result" / "predictions.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert [row["row"] for row in rows] == [str(i) for i in range(120)]
    assert all(row["class"] != row["second class"] for row in rows)
    assert all(0 <= float(row["probability"]) <= 1 and row["doubtful"] in ("yes", "no") for row in rows)
    doubtful = [float(row["probability"]) for row in rows if row["doubtful"] == "yes"]
    sure = [float(row["probability"]) for row in rows if row["doubtful"] == "no"]
    assert not doubtful or not sure or max(doubtful) <= min(sure)


def test_the_model_predicts_what_the_table_says(result):
    _, folder, _ = result
    with (folder / "result" / "predictions.csv").open() as file:
        said = [row["class"] for row in csv.DictReader(file)]
    x_t = two_domains()[2]
    for path in (folder / "result", folder / "result" / "model"):
        assert tsadapt.load(path).predict(x_t).tolist() == said


def test_given_labels_measure_and_change_nothing_else(result, tmp_path):
    made, folder, _ = result
    measured = made.summary["measured_accuracy"]
    assert measured["rows"] == 20
    assert measured["low"] <= measured["value"] <= measured["high"]
    x_s, y_s, x_t, _ = two_domains()
    other = adapt((x_s, y_s), x_t, out=tmp_path / "result", **FEW)
    assert other.summary["measured_accuracy"] is None
    for name in ("estimated_accuracy", "class_shares", "chosen", "doubtful"):
        assert other.summary[name] == made.summary[name]
    one, two = (path / "result" / "predictions.csv" for path in (folder, tmp_path))
    assert one.read_bytes() == two.read_bytes()


def test_target_labels_that_come_with_the_data_have_no_part(tmp_path, result):
    made, _, _ = result
    x_s, y_s, x_t, y_t = two_domains()
    shuffled = np.random.default_rng(1).permutation(np.array(["ant", "bee", "cow"])[y_t])
    other = adapt((x_s, y_s), (x_t, shuffled), out=tmp_path / "result", **FEW)
    for name in ("estimated_accuracy", "class_shares", "chosen", "doubtful"):
        assert other.summary[name] == made.summary[name]


def test_the_same_call_finds_everything_done(result, monkeypatch, capsys):
    made, folder, labels = result
    x_s, y_s, x_t, _ = two_domains()
    from tsadapt.training.trainer import Trainer

    monkeypatch.setattr(Trainer, "step", lambda *_: pytest.fail("trained again"))
    again = adapt((x_s, y_s), x_t, out=folder / "result", target_labels=labels, command="tsadapt adapt …", **FEW)
    assert {**again.summary, "seconds": 0} == {**made.summary, "seconds": 0}
    assert capsys.readouterr().err == ""


def test_the_page_can_be_made_again_with_all_that_is_known(result):
    """`tsadapt report` on a result: the estimate, the names of the candidates, what was measured, and the command."""
    made, folder, _ = result
    again = collect([folder / "result"])
    run, summary = again.runs[0], made.summary
    assert vars(run.trusted.estimate) == summary["estimated_accuracy"]
    assert run.trusted.meaning == summary["doubtful"]["meaning"]
    assert int(run.trusted.doubtful.sum()) == summary["doubtful"]["rows"]
    assert run.label == summary["chosen"]["candidate"]
    assert {name.split(" (")[0] for name in again.comparison.names} == {"source-only", "adabn", "paper"}
    assert (run.measured.rows, vars(run.measured.accuracy)) == (20, {
        name: summary["measured_accuracy"][name] for name in ("value", "low", "high")
    })  # fmt: skip
    assert run.command[0] == again.command == "tsadapt adapt …"
    page = (folder / "result" / "report.html").read_text(encoding="utf-8")
    assert f"by {run.label}" in page
    beside = collect([folder / "result", folder / "result" / summary["candidates"][0]["run"]])
    assert any(column.name == "estimated accuracy" for column in beside.comparison.columns)
    assert beside.runs[0].name.startswith("result: ")


def test_what_is_worth_knowing_is_said_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TSADAPT_CACHE", str(tmp_path / "cache"))
    labelled, new = write_classes(tmp_path / "labelled"), write_flat(tmp_path / "new")
    adapt(
        str(labelled), str(new), out=tmp_path / "r", portfolio=("adabn", "mi"), quiet=False, backbone=TINY,
        weights="none", image_size=32, workers=0, device="cpu", **{**SHORT, "steps": 4},
    )  # fmt: skip
    said = capsys.readouterr().err
    assert said.count("the backbone is frozen") == 1
    assert said.count(" computed in ") == 2
    assert "from the cache" not in said


def test_an_objective_is_one_more_candidate(tmp_path):
    x_s, y_s, x_t, _ = two_domains()
    made = adapt((x_s, y_s), x_t, out=tmp_path / "r", portfolio=("adabn",), steps=20, method="coral")
    assert {one["objective"] for one in made.summary["candidates"]} == {"source-only", "ce + adabn", "ce + coral"}


def test_what_cannot_be_trained_is_left_out_and_named(tmp_path):
    x_s, y_s, x_t, _ = two_domains()
    made = adapt((x_s, y_s), x_t, out=tmp_path / "r", portfolio=("adabn", "paper"), steps=20, network="linear")
    assert {one["candidate"] for one in made.summary["candidates"]} == {"source-only", "paper"}
    assert "batch normalisation" in made.summary["failed"]["adabn"]


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda by: by.name)
def test_a_stopped_command_goes_on_to_the_same_result(tmp_path, by):
    """Killed, or asked to stop once: then it says in one line that it can go on."""
    x_s, y_s, x_t, _ = two_domains(n=300)
    for name, arrays in (("s", {"x": x_s, "y": y_s}), ("t", {"x": x_t})):
        np.savez(tmp_path / f"{name}.npz", **arrays)
    words = [str(tmp_path / "s.npz"), str(tmp_path / "t.npz"), "--portfolio", "paper", "--steps", "600"]
    words += ["--checkpoint-every", "20", "--quiet"]
    command = [sys.executable, "-m", "tsadapt", "adapt", *words, "--out", str(tmp_path / "killed")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("killed/runs/*/checkpoints/*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(by)
    _, said = process.communicate()
    if by != signal.SIGKILL:
        assert (process.returncode, said) == (130, "tsadapt: interrupted; the same command resumes\n")
    assert not (tmp_path / "killed" / "summary.json").exists()
    assert main(["adapt", *words, "--out", str(tmp_path / "killed")]) == 0
    assert main(["adapt", *words, "--out", str(tmp_path / "whole")]) == 0
    one, two = (tmp_path / name / "predictions.csv" for name in ("killed", "whole"))
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"holdout": 0.0}, "held-out source rows"),
        ({"target_share": 0.5}, "all target rows"),
        ({"portfolio": ("strnog",)}, "strong"),
    ],
)
def test_refusals(tmp_path, settings, said):
    x_s, y_s, x_t, _ = two_domains()
    with pytest.raises(UserError, match=said):
        adapt((x_s, y_s), x_t, out=tmp_path / "r", **settings)
    assert not (tmp_path / "r").exists()


def test_other_data_is_refused(result):
    _, folder, _ = result
    x_s, y_s, x_t, _ = two_domains(seed=5)
    with pytest.raises(UserError, match="holds a result of"):
        adapt((x_s, y_s), x_t, out=folder / "result", **FEW)


def test_a_wrong_path_is_one_line(capsys, tmp_path):
    assert main(["adapt", str(tmp_path / "none"), str(tmp_path / "new")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert main(["adapt", str(tmp_path)]) == 2
    assert "adapt needs a SOURCE and a TARGET" in capsys.readouterr().err
