import csv
import errno
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.tasks import write_task

from tsadapt.cli import main

SHORT = ["--steps", "30", "--batch-size", "16", "--bottleneck", "8", "--quiet"]


@pytest.fixture
def run(here):
    assert main(["fit", "source.npz", "target.npz", "--tsa", "--out", "run", *SHORT]) == 0
    return Path("run")


def test_fit_evaluate_predict(run, capsys):
    assert main(["fit", "source.npz", "target.npz", "--tsa", "--out", "run", *SHORT]) == 0
    captured = capsys.readouterr()
    assert "already done" in captured.err
    out = captured.out
    assert "target target.npz (all, 120 rows): accuracy" in out
    assert 'source_term = "tsa"' in Path("run/config.toml").read_text()
    assert 'target_terms = ["mi"]' in Path("run/config.toml").read_text()
    assert main(["evaluate", "run", "target.npz", "--out", "e.json"]) == 0
    assert (
        json.loads(Path("e.json").read_text())["accuracy"]
        == json.loads(Path("run/metrics.json").read_text())["last"]["target"]["accuracy"]
    )
    np.savez("new.npz", x=np.load("target.npz")["x"][:7])
    assert main(["predict", "run", "new.npz", "--out", "deep/p.csv", "--probabilities"]) == 0
    rows = list(csv.DictReader(Path("deep/p.csv").read_text().splitlines()))
    assert [row["row"] for row in rows] == [str(i) for i in range(7)]
    for row in rows:
        shares = {name: float(row[f"p({name})"]) for name in ("ant", "bee", "cow")}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-4)
        assert max(shares, key=shares.get) == row["class"]
        assert float(row["confidence"]) == pytest.approx(max(shares.values()), abs=1e-5)
    assert [p.name for p in Path("deep").iterdir()] == ["p.csv"]
    capsys.readouterr()
    assert main(["predict", "run", "new.npz"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "row,class,confidence"


def test_flags_and_config_file(here):
    Path("c.toml").write_text(
        'source = "source.npz"\ntarget = "target.npz"\nlr = 1\nsource_term = "tsa"\ntarget_terms = ["mi"]\n'
    )
    assert main(["fit", "--config", "c.toml", "--lr", "0.02", "--no-mi", "--no-covariance", "--out", "r", *SHORT]) == 0
    text = Path("r/config.toml").read_text()
    assert "lr = 0.02" in text
    assert "target_terms = []" in text
    assert 'covariance = "none"' in text
    assert main(["fit", "--config", "r/config.toml", "--out", "r", "--quiet"]) == 0  # its own config: already done


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "nowhere.npz", "target.npz"], "nowhere.npz does not exist"),
        (["fit", "source.npz"], "fit needs a SOURCE and a TARGET"),
        (["fit", "target-only.npz", "source.npz"], "has no labels"),
        (["fit", "source.npz", "target.npz", "--mi", "--no-mi"], "contradict"),
        (["fit", "source.npz", "target.npz", "--tsa", "--source-term", "ce"], "contradict"),
        (["fit", "source.npz", "target.npz", "--steps", "0"], "steps is 0, expected more than zero"),
        (["fit", "source.npz", "target.npz", "--mi", "--beta", "-1"], "beta is -1.0, expected zero or more"),
        (["fit", "--config", "bad.toml"], "Unknown setting 'lrr'. Did you mean 'lr'?"),
        (["fit", "--config", "worse.toml"], "is not TOML"),
        (["fit", "--config", "typed.toml"], "steps is 'many', expected a whole number"),
        (["fit", "--config", "none.toml"], "No config at none.toml"),
        (["evaluate", "nowhere", "target.npz"], "No run at nowhere"),
        (["predict", "run", "images.npz"], "trained on feature vectors"),
        (["predict", "run", "target.npz", "--out", "source.npz/x.csv"], "source.npz/x.csv"),
        (["evaluate", "run", "target-only.npz"], "has no labels to compare with"),
        (["evaluate", "broken", "target.npz"], "cannot be loaded"),
        (["predict", "run", "target.npz", "--out", "run"], "run is a folder"),
        (["evaluate", "run", "target.npz", "--out", "run"], "run is a folder"),
        (["fit", "--config", "run/model/model.safetensors"], "is not a text file in UTF-8"),
        (["fti"], "Did you mean 'fit'?"),
    ],
)
def test_mistakes_are_one_line(run, words, message, capsys):
    np.savez("target-only.npz", x=np.zeros((5, 6)))
    np.savez("images.npz", x=np.zeros((5, 8, 8)))
    Path("bad.toml").write_text('source = "a"\ntarget = "b"\nlrr = 3\n')
    Path("worse.toml").write_text("source = \n")
    Path("typed.toml").write_text('source = "a"\ntarget = "b"\nsteps = "many"\n')
    Path("broken/model").mkdir(parents=True)
    Path("broken/model/model.json").write_text(Path("run/model/model.json").read_text())
    Path("broken/model/model.safetensors").write_bytes(b"rubbish")
    capsys.readouterr()
    assert main(words) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1


def test_help_is_quick_and_imports_nothing_heavy():
    program = (
        "import sys, tsadapt.cli as c\n"
        "try: c.main(['fit', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'sklearn', 'pandas', 'matplotlib'} & set(sys.modules), 'heavy'\n"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert time.monotonic() - start < 3  # about 0.3 s when nothing else runs
    assert "Example: tsadapt fit" in done.stdout
    assert main(["--help"]) == 0
    assert main([]) == 2
    assert main(["--version"]) == 0


@pytest.mark.parametrize("kind", ["methods", "datasets", "networks", "source-terms"])
def test_list(kind, capsys):
    assert main(["list", kind]) == 0
    assert capsys.readouterr().out.strip()


def start(here, out, *more):
    words = [sys.executable, "-m", "tsadapt", "fit", "source.npz", "target.npz", "--tsa", "--out", out]
    short = ["--steps", "1500", "--bottleneck", "8", "--checkpoint-every", "50", "--device", "cpu", *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*words, *short], cwd=here, stderr=subprocess.PIPE, text=True, env=environment)


def wait_for_checkpoint(here, out, deadline=60):
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        if list((here / out / "checkpoints").glob("step-*.pt")):
            return
        time.sleep(0.01)
    raise AssertionError("no checkpoint was written")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_stopped_by_a_signal_and_started_again(here, how):
    whole = start(here, "whole")
    whole.communicate(timeout=120)
    assert whole.returncode == 0
    first = start(here, "again")
    wait_for_checkpoint(here, "again")
    first.send_signal(how)
    said = first.communicate(timeout=60)[1]
    assert first.returncode == (-9 if how == signal.SIGKILL else 130)
    assert "Traceback" not in said
    if how != signal.SIGKILL:
        assert "the same command" in said
    second = start(here, "again")
    said = second.communicate(timeout=120)[1]
    assert second.returncode == 0
    assert "resumed at step" in said
    a, b = ((here / run / "model" / "model.safetensors").read_bytes() for run in ("whole", "again"))
    assert a == b


def test_demo_in_small(here, capsys):
    assert main(["demo", "--out", "demo", "--steps", "20"]) == 0
    summary = json.loads(Path("demo/summary.json").read_text())
    assert {one["candidate"] for one in summary["candidates"]} >= {"source-only", "adabn", "paper", "strong"}
    said = capsys.readouterr().out
    assert "judged by target labels (oracle)" in said
    assert said.strip().endswith("open demo/report.html")
    assert Path("demo/report.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fit", "a", "b", "--steps", "abc"], "--steps: expected a whole number, received 'abc'"),
        (["fit", "a", "b", "--lr", "1,0"], "--lr: expected a number, received '1,0'"),
        (["doctor", "a", "--workers", "two"], "--workers: expected a whole number, received 'two'"),
        (["sweep", "a", "b", "--jobs", "two"], "--jobs: expected a whole number, received 'two'"),
    ],
)
def test_a_word_where_a_number_belongs(capfd, words, said):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 4 GiB for an array"),
        MemoryError(),
        RuntimeError("err == 0. DefaultCPUAllocator: can't allocate memory: you tried 4 bytes. Error code 12"),
        RuntimeError("CUDA out of memory. Tried to allocate 4 GiB"),
    ],
)  # fmt: skip
def test_a_lack_of_memory_is_one_line(monkeypatch, capsys, error):
    def run_verb(verb, words):
        raise error

    monkeypatch.setattr("tsadapt.cli.verbs.run_verb", run_verb)
    assert main(["fit"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("tsadapt: Out of memory")
    assert said.count("\n") == 1


def test_other_errors_of_torch_are_not_hidden(monkeypatch):
    def run_verb(verb, words):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr("tsadapt.cli.verbs.run_verb", run_verb)
    with pytest.raises(RuntimeError, match="shapes differ"):
        main(["fit"])


@pytest.mark.parametrize("flag", ["--batch-size", "--target-batch-size"])
def test_a_batch_far_larger_than_its_domain_is_refused(here, capsys, flag):
    assert main(["fit", "source.npz", "target.npz", "--steps", "2", "--quiet", flag, "1000000000"]) == 2
    assert "A batch of 1,000,000,000 rows is too large" in capsys.readouterr().err


def test_constant_features_are_noted_once(here, capsys):
    with np.load("source.npz") as file:
        arrays = dict(file)
    arrays["x"][:, 0] = 3.0
    arrays["x"][:, 1] = 5e9 + np.arange(len(arrays["x"])) % 2
    np.savez("source.npz", **arrays)
    assert main(["fit", "source.npz", "target.npz", "--out", "run", *SHORT]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "onstant" in line]
    assert lines == [
        "note: Constant features: source.npz has 1 of 6, and 1 nearly constant. They tell nothing, or only rounding"
        " errors."
    ]
    assert main(["doctor", "source.npz", "target.npz"]) == 1
    assert capsys.readouterr().out.count("warning: Constant features: source.npz has 1 of 6, and 1 nearly") == 1


def test_a_home_of_nobody_does_not_exist(run, capsys):
    for verb in (["doctor"], ["predict", "run"], ["evaluate", "run"]):
        assert (
            main([*verb, "~nobody-of-that-name/x.npz", *(["--out", "source.npz"] if verb != ["doctor"] else [])]) == 2
        )
        assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["fit", "predict", "evaluate"])
def test_a_device_without_numbers_is_refused(tmp_path, monkeypatch, capsys, verb):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    task = ["source.npz", "target.npz", "--steps", "2", "--quiet", "--out", "run"]
    assert main(["fit", *task]) == 0
    capsys.readouterr()
    words = ["fit", *task[:-1], "other"] if verb == "fit" else [verb, "run", "target.npz"]
    assert main([*words, "--device", "meta"]) == 2
    assert "Device 'meta' cannot be used here" in capsys.readouterr().err


def test_a_full_disk_is_one_line_with_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert main(["fit", "source.npz", "target.npz", "--steps", "2", "--quiet", "--out", "run"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "run cannot be written: No space left on device" in said
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "source.npz", "target.npz", "--steps", "2", "--quiet", "--out", "run"]) == 0
    Path("run/metrics.json").unlink()
    monkeypatch.setattr(os, "fsync", full)
    assert main(["fit", "source.npz", "target.npz", "--steps", "2", "--quiet", "--out", "run"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert (
        said == "tsadapt: No space left on device: run/manifest.json. Free some space there, or choose another place."
    )


def test_a_warning_is_a_note_without_a_line_of_the_code(monkeypatch, capsys):
    def shown(*given):
        print(warnings.formatwarning("odd\x1b[31m", UserWarning, "code.py", 1), end="")
        return 0

    monkeypatch.setattr("tsadapt.cli.list.List.__call__", shown)
    before = warnings.formatwarning
    assert main(["list", "methods"]) == 0
    assert capsys.readouterr().out == "note: odd\\x1b[31m\n"
    assert warnings.formatwarning is before
