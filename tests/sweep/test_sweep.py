import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.engine.conftest import write_task

from tsadapt.cli import main
from tsadapt.config import RunConfig
from tsadapt.errors import UserError
from tsadapt.sweep import search
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
        ("lambda0=big", "lambda0 is 'big', expected a number"),
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
    assert len(draw({"lr": Range(0.1, 0.10001)}, 5, seed=0)) == 1  # as many as four digits tell apart
    whole = draw(dict([parse_axis("steps=5..9")]), 4, seed=0)
    assert all(isinstance(one["steps"], int) and 5 <= one["steps"] <= 9 for one in whole)


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
    assert {"dev", "ensv", "consensus rank", "dev weights: effective_sample_size"} <= set(rows[0])
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
        (["sweep", "source.npz"], "sweep needs a SOURCE and a TARGET"),
        (["sweep", "source.npz", "target.npz", "--by", "entrpy"], "Did you mean 'entropy'"),
        (["sweep", "source.npz", "target.npz", "--jobs", "0"], "from 1 on"),
        (["sweep", "source.npz", "target.npz", "--grid", "lr=0.1..1"], "lr has a range"),
        (["sweep", "source.npz", "target.npz", "--grid", "lambda0=-1"], "lambda0 is -1.0, expected zero or more"),
        (["sweep", "source.npz", "target.npz", "--out", "full"], "holds no sweep"),
        (["sweep", "source.npz", "target.npz", "--holdout", "0.9"], "holdout is 0.9"),
        (["sweep", "source.npz", "target.npz", "--grid", "method=dan,dann"], "Unknown method 'dan'"),
        (["sweep", "source.npz", "target.npz", "--grid", "lr=0.1", "--grid", "lr=0.2"], "lr twice"),
        (["sweep", "source.npz", "target.npz", "--no-mi", "--tsa", "--grid", "beta=0.1,0.2"], "nothing uses it"),
        (["sweep", "source.npz", "target.npz", "--search", "grid", "--trials", "3"], "leave out --trials"),
        (["sweep", "source.npz", "target.npz", "--storage", "x"], "add --search optuna"),
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
    assert "target rows differ" in capsys.readouterr().err
    write_task(here, names=("dog", "elk", "fox"))
    assert main(["fit", "source.npz", "target.npz", "--out", "c", *SHORT]) == 0
    assert main(["select", "a", "c"]) == 2
    assert "classes differ" in capsys.readouterr().err


def test_a_process_that_dies_is_reported_and_the_rest_go_on(here):
    base = RunConfig("source.npz", "target.npz", steps=5, batch_size=16, bottleneck=8, device="cpu")
    planned = [Planned.of(base, {"seed": seed}, Path("s")) for seed in range(3)]
    # The second one's log is a pipe that nobody reads: its process waits there until it is killed.
    log = Path("s/logs") / f"{planned[1].out.name}.txt"
    log.parent.mkdir(parents=True)
    os.mkfifo(log)
    killer = threading.Thread(target=_kill_what_opens, args=(log,))
    killer.start()
    failed = run_all(planned, jobs=2, quiet=True)
    killer.join()
    assert list(failed) == [planned[1].out]
    assert "its process died (exit status -9" in failed[planned[1].out]
    assert planned[0].done
    assert planned[2].done


def _kill_what_opens(log):
    """Kill the child that opens a pipe for writing."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for stat in Path("/proc").glob("[0-9]*/wchan"):
            with contextlib.suppress(OSError):
                if "fifo" in stat.read_text() or "wait_for_partner" in stat.read_text():
                    os.kill(int(stat.parent.name), signal.SIGKILL)
                    return
        time.sleep(0.1)


LONG = ["--steps", "3", "--bottleneck", "8", "--out", "s", "--checkpoint-every", "100000"]


# A job in the background of a shell ignores Ctrl-C, and so would all that the tests start there.
HEARS_CTRL_C = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from tsadapt.cli import main;"
    " sys.exit(main(sys.argv[1:]))"
)


def stopped(words, begun, done=1, number=signal.SIGINT):
    """Start a sweep, wait until so many of its runs have begun and so many are done, and stop it: what it said."""
    process = subprocess.Popen([sys.executable, "-c", HEARS_CTRL_C, *words], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while (
        time.monotonic() < deadline
        and process.poll() is None
        and (
            len([*Path("s/runs").glob("*/records.jsonl")]) < begun
            or len([*Path("s/runs").glob("*/metrics.json")]) < done
        )
    ):
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(number)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 130, err
    assert "the same command goes on" in err
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_side_by_side_saves_all_and_starts_nothing_more(here, number):
    """Source-only makes three steps and ends; two of the four others are on their way, and two are waiting."""
    words = [*SWEEP[:3], "--grid", "lambda0=0.1,0.2,0.3,0.4", "--grid", "steps=100000", "--jobs", "2", *LONG]
    stopped(words, begun=3, number=number)
    assert len([*Path("s/runs").iterdir()]) == 3
    assert len([*Path("s/runs").glob("*/checkpoints/step-*.pt")]) == 3


def test_stopped_with_one_run_left_and_going_on(here):
    """The short run of two ends, the other is stopped while nobody else works; the same command then ends it."""
    words = [*SWEEP[:3], "--grid", "steps=4,1500", "--jobs", "2", *LONG, "--batch-size", "16"]
    stopped(words, begun=3, done=2)
    unfinished = [path for path in Path("s/runs").iterdir() if not (path / "metrics.json").exists()]
    assert len(unfinished) == 1
    assert [*unfinished[0].glob("checkpoints/step-*.pt")]
    assert main([*words, "--quiet"]) == 0
    assert "resumed at step" in Path("s/logs", f"{unfinished[0].name}.txt").read_text()
    assert choice("s")["failed"] == {}


OPTUNA = ["sweep", "source.npz", "target.npz", "--search", "optuna", *SHORT, "--out", "s"]


def test_optuna_searches_and_resumes(here, capsys):
    pytest.importorskip("optuna")
    words = [*OPTUNA, "--grid", "lambda0=0.05..1", "--grid", "steps=20..30"]
    assert main([*words, "--trials", "2"]) == 0
    assert "guided by dev" in capsys.readouterr().err
    runs = {path.name for path in Path("s/runs").iterdir()}
    assert len(runs) == 3
    assert main([*words, "--trials", "3"]) == 0
    more = {path.name for path in Path("s/runs").iterdir()}
    assert runs < more
    assert len(more) == 4
    assert set(choice("s")["overrides"]) <= {"lambda0", "steps", "method", "source_term", "mi", "term_weight"}
    assert main([*OPTUNA, "--grid", "lambda0=0.1,0.2", "--trials", "1"]) == 0  # other axes are another study


def test_optuna_takes_up_what_was_stopped(here, monkeypatch):
    pytest.importorskip("optuna")
    words = [*OPTUNA, "--grid", "lambda0=0.05..1", "--trials", "2"]
    with monkeypatch.context() as patch:
        patch.setattr(search, "run_all", _stop)
        assert main(words) == 130
    assert main(words) == 0
    stopped_at = Path("stopped").read_text()
    assert Path("s/runs", stopped_at, "metrics.json").exists()
    assert len([*Path("s/runs").iterdir()]) == 3


def _stop(planned, *rest):
    Path("stopped").write_text(planned[0].out.name)
    raise KeyboardInterrupt


def test_what_is_wrong_with_a_storage_is_known_before_training(here, capsys):
    pytest.importorskip("optuna")
    assert main([*OPTUNA, "--grid", "lambda0=0.1,0.2", "--storage", "nonsense"]) == 2
    assert "--storage nonsense cannot be opened" in capsys.readouterr().err
    assert not [*Path("s").glob("runs/*")]


def test_overwrite_after_the_data_changed(here, capsys):
    words = [*SWEEP[:3], "--grid", "lambda0=0.1", *SHORT, "--out", "s"]
    assert main(words) == 0
    before = choice("s")["scores"]
    write_task(here, seed=5)
    assert main(words) == 2
    assert "a run of other data" in capsys.readouterr().err
    assert main([*words, "--overwrite"]) == 0
    assert choice("s")["scores"] != before


def test_the_chosen_step_is_what_predicts(here):
    """With several candidates a run, the model of the chosen step is loaded, whichever it is."""
    from tsadapt.engine.saved import load_model
    from tsadapt.selection.predictions import Predictions

    words = [*SWEEP[:3], "--grid", "lambda0=0.1", *SHORT, "--candidates", "4", "--out", "s"]
    assert main(words) == 0
    x = torch.from_numpy(np.load("target.npz")["x"]).float()
    run = next(path for path in Path("s/runs").iterdir() if 'source_term = "tsa"' in (path / "config.toml").read_text())
    for step in (6, 12, 18, 24):
        Path("s/choice.json").write_text(json.dumps({"run": f"runs/{run.name}", "step": step}))
        with torch.no_grad():
            logits = load_model(Path("s"), torch.device("cpu")).model(x)[1].numpy()
        expected = Predictions.read(run / "predictions" / f"step-{step:09d}.npz").logits_t
        assert np.allclose(logits, expected, atol=1e-5)
    Path("s/choice.json").write_text("{}")
    with pytest.raises(UserError, match="not what tsadapt writes"):
        load_model(Path("s"), torch.device("cpu"))


def test_a_folder_of_another_task_is_refused(here, capsys):
    assert main([*SWEEP[:3], "--grid", "lambda0=0.1", *SHORT, "--out", "s"]) == 0
    before = Path("s/choice.json").read_bytes()
    assert main(["sweep", "target.npz", "source.npz", "--grid", "lambda0=0.1", *SHORT, "--out", "s"]) == 2
    assert "holds a sweep of source.npz → target.npz" in capsys.readouterr().err
    assert Path("s/choice.json").read_bytes() == before


def test_select_names_what_is_not_ready(here, capsys):
    assert main([*SWEEP[:3], "--grid", "lambda0=0.1", *SHORT, "--out", "s"]) == 0
    run = next(path for path in Path("s/runs").iterdir() if 'source_term = "tsa"' in (path / "config.toml").read_text())
    (run / "metrics.json").unlink()
    capsys.readouterr()
    assert main(["select", "s"]) == 0
    captured = capsys.readouterr()
    assert "1 run of s not brought to an end" in captured.err
    assert "1 candidate by consensus" in captured.out
    assert "there is no other candidate" in captured.out


def test_select_refuses_a_runs_folder_for_its_choice(here, capsys):
    for seed in ("1", "2"):
        assert main(["fit", "source.npz", "target.npz", "--out", f"r{seed}", "--seed", seed, *SHORT]) == 0
    assert main(["select", "r1", "r2", "--out", "r1"]) == 2
    assert "is the folder of a run" in capsys.readouterr().err
    assert not Path("r1/choice.json").exists()
