import csv
import json
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.sweep.words import SHORT, SWEEP, choice
from tests.tasks import runs_in, write_task

from tsadapt.cli import main
from tsadapt.errors import UserError
from tsadapt.runs.folder import RunFolder, SweepFolder
from tsadapt.runs.model import load
from tsadapt.selection.predictions import Predictions


def test_sweep_chooses_writes_and_is_not_done_twice(here, capsys):
    assert main([*SWEEP, "--out", "s", "--jobs", "2"]) == 0
    out = capsys.readouterr().out
    assert "5 candidates by consensus" in out
    assert "oracle" in out
    made = choice("s")
    assert set(made["overrides"]) in (
        {"lambda0", "beta"},
        {"method", "source_term", "target_terms", "term_weight", "sdat"},
    )
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
    assert main(["sweep", str(here / "source.npz"), "./target.npz", *SWEEP[3:], "--out", str(here / "s")]) == 0
    assert {path: path.stat().st_mtime_ns for path in Path("s/runs").glob("*/metrics.json")} == times
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


def test_the_choice_is_the_same_with_labels_without_and_with_shuffled_ones(here):
    found = []
    for name, how in (("with", {}), ("without", {"target_labels": False}), ("shuffled", {"shuffle": True})):
        write_task(here, **how)
        assert main([*SWEEP, "--out", name]) == 0
        found.append((Path(name, "choice.json").read_bytes(), Path(name, "scores.csv").read_bytes()))
        assert Path(name, "oracle.json").exists() == (name != "without")
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
        (["sweep", "nowhere.npz", "target.npz"], "nowhere.npz does not exist"),
        (["sweep", "source.npz"], "sweep needs a SOURCE and a TARGET"),
        (["sweep", "source.npz", "target.npz", "--by", "entrpy"], "Did you mean 'entropy'"),
        (["sweep", "source.npz", "target.npz", "--jobs", "0"], "from 1 on"),
        (["sweep", "source.npz", "target.npz", "--grid", "lr=0.1..1"], "lr is a range"),
        (["sweep", "source.npz", "target.npz", "--grid", "lambda0=-1"], "lambda0 is -1.0, expected zero or more"),
        (["sweep", "source.npz", "target.npz", "--out", "full"], "holds no sweep"),
        (["sweep", "source.npz", "target.npz", "--holdout", "0.9"], "holdout is 0.9"),
        (["sweep", "source.npz", "target.npz", "--grid", "method=dannn,dann"], "Unknown method 'dannn'"),
        (["sweep", "source.npz", "target.npz", "--grid", "lr=0.1", "--grid", "lr=0.2"], "lr twice"),
        (
            ["sweep", "source.npz", "target.npz", "--no-mi", "--tsa", "--grid", "beta=0.1,0.2"],
            "no term of these runs has such a setting",
        ),
        (["sweep", "source.npz", "target.npz", "--search", "grid", "--trials", "3"], "leave out --trials"),
        (["sweep", "source.npz", "target.npz", "--storage", "x"], "add --search optuna"),
        (["select"], "select needs runs"),
        (["select", "nowhere"], "No run at nowhere"),
        (["select", "full"], "it contains no run"),
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
    words = [*SWEEP[:3], "--grid", "lambda0=0.1", *SHORT, "--candidates", "4", "--out", "s"]
    assert main(words) == 0
    x = torch.from_numpy(np.load("target.npz")["x"]).float()
    run = next(path for path in runs_in("s/runs") if 'source_term = "tsa"' in (path / "config.toml").read_text())
    for step in (6, 12, 18, 24):
        Path("s/choice.json").write_text(json.dumps({"run": f"runs/{run.name}", "step": step}))
        with torch.no_grad():
            logits = load("s").network(x)[1].numpy()
        expected = Predictions.read(RunFolder(run).predictions_file(step)).logits_t
        assert np.allclose(logits, expected, atol=1e-5)
    Path("s/choice.json").write_text("{}")
    with pytest.raises(UserError, match="not written by tsadapt"):
        load("s")


def test_a_folder_of_another_task_is_refused(here, capsys):
    assert main([*SWEEP[:3], "--grid", "lambda0=0.1", *SHORT, "--out", "s"]) == 0
    before = Path("s/choice.json").read_bytes()
    assert main(["sweep", "target.npz", "source.npz", "--grid", "lambda0=0.1", *SHORT, "--out", "s"]) == 2
    said = capsys.readouterr().err
    assert str(here / "source.npz") in said
    assert str(here / "target.npz") in said
    assert "choose another --out" in said
    assert Path("s/choice.json").read_bytes() == before


def test_select_names_what_is_not_ready(here, capsys):
    assert main([*SWEEP[:3], "--grid", "lambda0=0.1", *SHORT, "--out", "s"]) == 0
    run = next(path for path in runs_in("s/runs") if 'source_term = "tsa"' in (path / "config.toml").read_text())
    (run / "metrics.json").unlink()
    capsys.readouterr()
    assert main(["select", "s"]) == 0
    captured = capsys.readouterr()
    assert "1 run of s did not finish" in captured.err
    assert "1 candidate by consensus" in captured.out
    assert "there is no other candidate" in captured.out


def test_select_shows_the_folders_that_were_typed_and_refuses_one_for_its_choice(here, capsys):
    for seed in ("1", "2"):
        assert main(["fit", "source.npz", "target.npz", "--out", f"r{seed}", "--seed", seed, *SHORT]) == 0
    capsys.readouterr()
    assert main(["select", "r1", f"{here}/r2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [any(f"seed {i}" in line and f" {typed} " in line for line in lines) for i, typed in (
        (1, "r1"), (2, f"{here}/r2")
    )] == [True, True]  # fmt: skip
    assert main(["select", "r1", "r2", "--out", "r1"]) == 2
    assert "r1 is a run folder" in capsys.readouterr().err
    assert not Path("r1/choice.json").exists()


def test_candidates_are_named_by_their_whole_objective(here, capsys):
    """A row of cross-entropy with mutual information is not called after the cross-entropy alone."""
    words = ["sweep", "source.npz", "target.npz", "--grid", "source_term=ce,tsa", *SHORT, "--out", "s"]
    assert main([*words, "--mi"]) == 0
    out = capsys.readouterr().out
    assert {"ce + mi", "tsa + mi", "source-only"} <= {
        word.strip() for line in out.splitlines() for word in line.split("│")
    }


def test_what_follows_from_the_method_is_no_part_of_the_name(here, capsys):
    words = ["sweep", "source.npz", "target.npz", *SHORT, "--no-mi"]
    assert main([*words, "--grid", "method=source-only,dann", "--grid", "source_term=ce", "--out", "s"]) == 0
    assert {"ce + dann", "source-only"} <= _cells(capsys.readouterr().out)
    assert main([*words, "--method", "dann", "--grid", "separate_bn=true,false", "--out", "t"]) == 0
    cells = _cells(capsys.readouterr().out)
    assert {"tsa + dann", "tsa + dann, separate_bn False"} <= cells


def _cells(out):
    return {word.strip() for line in out.splitlines() for word in line.split("│")}


def test_a_run_of_an_older_version_is_called_that(here, capsys):
    Path("old").mkdir()
    Path("old/config.toml").write_text('source = "a"\n')
    assert main(["select", "old"]) == 2
    assert "older version" in capsys.readouterr().err


def test_a_run_named_like_a_formula_is_not_run_by_a_spreadsheet(here):
    for name, seed in (("=1+1", "0"), ("b", "1")):
        words = ["--seed", seed, "--holdout", "0.2", "--out", name]
        assert main(["fit", "source.npz", "target.npz", "--steps", "10", "--bottleneck", "8", "--quiet", *words]) == 0
    assert main(["select", "=1+1", "b", "--out", "s"]) == 0
    rows = list(csv.DictReader(Path("s/scores.csv").read_text().splitlines()))
    assert [row["run"] for row in rows] == ["'=1+1", "b"]
    assert [float(row["seed"]) for row in rows] == [0, 1]
    assert all(float(row["entropy"]) < 0 for row in rows)


def test_a_second_sweep_in_the_same_folder_is_refused(here, capsys):
    with SweepFolder(Path("s")).lock():
        assert main([*SWEEP, "--out", "s"]) == 2
        said = capsys.readouterr().err
        assert "s is being used by another process: wait for it, or choose another --out." in said
        assert not Path("s").exists()
    assert main([*SWEEP, "--out", "s"]) == 0


def test_a_config_that_changed_or_predictions_that_are_lost_are_named(here, capsys):
    assert main([*SWEEP, "--out", "s"]) == 0
    run = runs_in("s/runs")[0]
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace("seed = 0", "seed = 7"))
    assert main(["select", "s"]) == 2
    assert "config.toml was changed after the run was trained" in capsys.readouterr().err
    (run / "config.toml").write_text(config)
    (prediction,) = (run / "predictions").glob("step-*.npz")
    data = prediction.read_bytes()
    for wrong in (b"", data[:100], b"PK\x03\x04", data[:-40] + bytes(40)):
        prediction.write_bytes(wrong)
        assert main(["select", "s"]) == 2
        assert f"{prediction} cannot be read" in capsys.readouterr().err
    prediction.unlink()
    os.mkfifo(prediction)
    assert main(["select", "s"]) == 2
    assert "has no predictions of step" in capsys.readouterr().err
    prediction.unlink()
    prediction.write_bytes(data)
    (run / "manifest.json").unlink()
    assert main(["select", "s"]) == 2
    assert "manifest.json is missing" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["", "[]", "{}", "null", "{", "step"])
def test_a_damaged_choice_is_not_another_choice(here, capsys, damage):
    assert main([*SWEEP, "--out", "s"]) == 0
    text = Path("s/choice.json").read_text()
    other = re.sub('"run": "[^"]*"', f'"run": "runs/{runs_in("s/runs")[0].name}", "a": 1', text)
    Path("s/choice.json").write_text(other if damage == "step" else damage)
    capsys.readouterr()
    assert main(["predict", "s", "target.npz"]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "s/choice.json" in said


def test_printed_commands_train_the_runs_that_the_sweep_then_chooses_among(here, capsys):
    assert main([*SWEEP, "--out", "s", "--print-commands"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert not RunFolder(Path("s")).exists
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "tsadapt"
        assert main([*words, "--quiet"]) == 0
    times = {path: path.stat().st_mtime_ns for path in Path("s/runs").glob("*/metrics.json")}
    assert len(times) == 5
    assert main([*SWEEP, "--out", "s"]) == 0
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert choice("s")["by"] == "consensus"
    assert main([*SWEEP, "--search", "optuna", "--out", "t", "--print-commands"]) == 2
    assert "--print-commands needs all runs beforehand" in capsys.readouterr().err
