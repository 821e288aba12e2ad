import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.engine.conftest import write_task

from tsadapt.cli import main
from tsadapt.config import RunConfig
from tsadapt.errors import UserError
from tsadapt.sweep import runner
from tsadapt.sweep.plan import Planned, Range, draw, grid, parse_axis
from tsadapt.sweep.runner import run_all

SHORT = ["--steps", "24", "--batch-size", "16", "--bottleneck", "8", "--quiet", "--lr", "0.05"]
GRID = ["--grid", "lambda0=0.1,0.25", "--grid", "beta=0.05,0.1"]
SWEEP = ["sweep", "source.npz", "target.npz", *GRID, *SHORT]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    return tmp_path


def choice(folder):
    return json.loads(Path(folder, "choice.json").read_text())


def test_axes():
    assert parse_axis("lambda0=0.1, 0.25") == ("lambda0", (0.1, 0.25))
    assert parse_axis("mi=true,false") == ("mi", (True, False))
    assert parse_axis("method=dann,cdan+e") == ("method", ("dann", "cdan+e"))
    assert parse_axis("steps=10,20") == ("steps", (10, 20))
    assert parse_axis("lr=0.001..0.1:log") == ("lr", Range(0.001, 0.1, True))
    assert grid({"a": (1, 2), "b": (3, 4)}) == [{"a": 1, "b": 3}, {"a": 1, "b": 4}, {"a": 2, "b": 3}, {"a": 2, "b": 4}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lambda0", "expected NAME=VALUE"),
        ("lamda0=1", "Did you mean 'lambda0'"),
        ("lambda0=big", "lambda0 is 'big', expected float"),
        ("beta=0.1,0.1", "twice"),
        ("lr=1..0.1", "expected a range"),
        ("lr=0..1:log", "above zero"),
        ("source=a,b", "Unknown setting 'source'"),
    ],
)
def test_bad_axes(text, message):
    with pytest.raises(UserError, match=message):
        parse_axis(text)


def test_draws_are_a_function_of_the_seed():
    axes = {"lambda0": (0.1, 0.25, 0.5), "beta": (0.01, 0.1)}
    assert draw(axes, 4, seed=1) == draw(axes, 4, seed=1) != draw(axes, 4, seed=2)
    assert len(draw(axes, 99, seed=1)) == 6  # there are no more
    drawn = draw({"lr": Range(1e-4, 1e-1, log=True), "method": ("dann", "bsp")}, 30, seed=0)
    rates = np.array([one["lr"] for one in drawn])
    assert ((rates >= 1e-4) & (rates <= 1e-1)).all()
    assert 0.2 < (rates < 3e-3).mean() < 0.8  # evenly by orders of magnitude
    with pytest.raises(UserError, match="--trials"):
        grid({"lr": Range(0.1, 0.2)})


def test_sweep_chooses_writes_and_is_not_done_twice(here, capsys):
    assert main([*SWEEP, "--out", "s", "--jobs", "2"]) == 0
    out = capsys.readouterr().out
    assert "5 candidates by consensus" in out
    assert "oracle" in out
    made = choice("s")
    assert set(made["overrides"]) in ({"lambda0", "beta"}, {"method", "source_term", "mi", "term_weight"})
    rows = list(csv.DictReader(Path("s/scores.csv").read_text().splitlines()))
    assert len(rows) == 5
    assert sum(row["chosen"] == "yes" for row in rows) == 1
    assert {"dev", "ensv", "consensus rank", "dev effective_sample_size"} <= set(rows[0])
    assert json.loads(Path("s/oracle.json").read_text())["validators"]["consensus"]["regret"] >= 0
    times = {path: path.stat().st_mtime_ns for path in Path("s/runs").glob("*/metrics.json")}
    assert len(times) == 5
    before = Path("s/choice.json").read_bytes()
    assert main([*SWEEP, "--out", "s"]) == 0
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert Path("s/choice.json").read_bytes() == before
    # The folder of the sweep stands for the chosen run, and select scores its runs again.
    assert main(["evaluate", "s", "target.npz"]) == 0
    assert main(["predict", "s", "target.npz", "--out", "p.csv"]) == 0
    capsys.readouterr()
    assert main(["select", "s", "--by", "im", "--out", "again"]) == 0
    assert "5 candidates by im" in capsys.readouterr().out
    assert choice("again")["by"] == "im"
    assert (Path("again") / choice("again")["run"] / "metrics.json").exists()


def test_the_holdout_is_a_tenth_and_tsa_is_what_is_swept(here):
    assert main([*SWEEP[:3], "--grid", "lambda0=0.1", *SHORT, "--out", "s"]) == 0
    texts = [path.read_text() for path in Path("s/runs").glob("*/config.toml")]
    assert all("holdout = 0.1" in text for text in texts)
    assert sorted(text.count('source_term = "tsa"') for text in texts) == [0, 1]


def test_the_choice_is_the_same_with_labels_without_and_with_shuffled_ones(here, tmp_path):
    found = []
    for name, how in (("with", {}), ("without", {"target_labels": False}), ("shuffled", {"shuffle": True})):
        folder = tmp_path / name
        folder.mkdir()
        write_task(folder, **how)
        os.chdir(folder)
        assert main([*SWEEP, "--out", "s"]) == 0
        found.append((Path("s/choice.json").read_bytes(), Path("s/scores.csv").read_bytes()))
        assert Path("s/oracle.json").exists() == (name != "without")
    assert found[0] == found[1] == found[2]


def test_labels_that_come_later_are_used_to_judge(here):
    write_task(here, target_labels=False)
    assert main([*SWEEP, "--out", "s"]) == 0
    assert not Path("s/oracle.json").exists()
    before = Path("s/choice.json").read_bytes()
    write_task(here)
    assert main([*SWEEP, "--out", "s"]) == 0
    assert Path("s/oracle.json").exists()
    assert Path("s/choice.json").read_bytes() == before


def test_a_failed_candidate_is_reported_and_the_rest_go_on(here, capsys):
    words = ["sweep", "source.npz", "target.npz", "--grid", "lr=0.05,1e30", *SHORT[:-2], "--out", "s"]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert "1 run of 2 failed" in captured.err
    assert "lr=1e+30" in captured.err
    made = choice("s")
    assert list(made["failed"]) == ["lr=1e+30"]
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sweep", "nowhere.npz", "target.npz"], "No file at nowhere.npz"),
        (["sweep", "source.npz"], "needs a SOURCE and a TARGET"),
        (["sweep", "source.npz", "target.npz", "--by", "entrpy"], "Did you mean 'entropy'"),
        (["sweep", "source.npz", "target.npz", "--jobs", "0"], "from 1 on"),
        (["sweep", "source.npz", "target.npz", "--grid", "lr=0.1..1"], "lr has a range"),
        (["sweep", "source.npz", "target.npz", "--grid", "lambda0=-1"], "lambda0 is -1.0, expected zero or more"),
        (["sweep", "source.npz", "target.npz", "--out", "full"], "holds no sweep"),
        (["sweep", "source.npz", "target.npz", "--holdout", "0.9"], "holdout is 0.9"),
        (["select"], "select needs runs"),
        (["select", "nowhere"], "No run at nowhere"),
        (["select", "full"], "it holds no run"),
    ],
)
def test_mistakes_get_one_line(here, capsys, words, message):
    Path("full").mkdir()
    Path("full/thesis.txt").write_text("mine")
    assert main([*words, "--quiet"] if words[0] == "sweep" else words) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert Path("full/thesis.txt").read_text() == "mine"
    assert not Path("runs").exists() or not [*Path("runs").glob("*/runs/*/metrics.json")]


def test_select_refuses_runs_of_different_targets(here, capsys):
    np.savez("other.npz", x=np.load("target.npz")["x"][:50])
    for target, out in (("target.npz", "a"), ("other.npz", "b")):
        assert main(["fit", "source.npz", target, "--out", out, *SHORT]) == 0
    assert main(["select", "a", "b"]) == 2
    assert "not of one task" in capsys.readouterr().err


def test_a_process_that_dies_is_reported_and_the_rest_go_on(here, monkeypatch):
    base = RunConfig("source.npz", "target.npz", steps=5, batch_size=16, bottleneck=8, device="cpu")
    planned = [Planned.of(base, {"seed": seed}, Path("s")) for seed in range(3)]
    monkeypatch.setattr(runner, "_train", _die_at_seed_one)
    failed = run_all(planned, jobs=2, quiet=True)
    assert list(failed) == [planned[1].out]
    assert "its process died" in failed[planned[1].out]


def _die_at_seed_one(one):
    if one.config.seed == 1:
        os._exit(9)
    return ""


def test_ctrl_c_saves_and_the_same_command_goes_on(here):
    # Source-only makes three steps and ends, so that it is the two others, side by side, that are stopped.
    words = [sys.executable, "-m", "tsadapt.cli", *SWEEP[:3], "--grid", "lambda0=0.1,0.2", "--grid", "steps=100000"]
    words += ["--jobs", "2", "--steps", "3", "--bottleneck", "8", "--out", "s", "--checkpoint-every", "100000"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 90
    while len([*Path("s/runs").glob("*/records.jsonl")]) < 3 and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "the same command goes on" in err
    assert "Traceback" not in err
    assert len([*Path("s/runs").glob("*/checkpoints/step-*.pt")]) == 3


def test_optuna_searches_and_resumes(here, capsys):
    pytest.importorskip("optuna")
    words = [
        "sweep",
        "source.npz",
        "target.npz",
        "--search",
        "optuna",
        "--grid",
        "lambda0=0.05..1",
        *SHORT,
        "--out",
        "s",
    ]
    assert main([*words, "--trials", "2"]) == 0
    assert "guided by dev" in capsys.readouterr().err
    runs = {path.name for path in Path("s/runs").iterdir()}
    assert len(runs) == 3
    assert main([*words, "--trials", "3"]) == 0
    more = {path.name for path in Path("s/runs").iterdir()}
    assert runs < more
    assert len(more) == 4
    assert set(choice("s")["overrides"]) <= {"lambda0", "method", "source_term", "mi", "term_weight"}
