"""A benchmark of small tasks: what it writes, what it does not do twice, and that stopping it changes nothing."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.tasks import runs_in, write_task

from tsadapt.benchmark import benchmark
from tsadapt.cli import main
from tsadapt.errors import UserError
from tsadapt.objectives.base import METHODS, Method
from tsadapt.runs.folder import RunFolder

SHORT = ["--steps", "12", "--batch-size", "16", "--bottleneck", "8", "--lr", "0.05", "--device", "cpu", "--quiet"]
TASKS = ["--task", "there=source.npz:target.npz", "--task", "back=target.npz:source.npz"]
WORDS = ["benchmark", *TASKS, "--methods", "source-only,tsa", "--seeds", "0,1", *SHORT, "--out", "b"]


def results(folder="b"):
    return json.loads(Path(folder, "benchmark.json").read_text())


def times(folder="b"):
    return {path: path.stat().st_mtime_ns for path in Path(folder, "runs").glob("*/metrics.json")}


def test_every_method_on_every_task_with_every_seed_once(here, capsys):
    assert main(WORDS) == 0
    said = capsys.readouterr().out
    assert "over source-only, seeds" in said
    found = results()
    assert len(found["runs"]) == len(times()) == 2 * 2 * 2
    assert {(run["method"], run["task"], run["seed"]) for run in found["runs"]} == {
        (method, task, seed) for method in ("source-only", "tsa") for task in ("there", "back") for seed in (0, 1)
    }
    for run in found["runs"]:
        made = RunFolder(Path("b", run["run"]))
        assert run["accuracy"] == made.metrics["last"]["target"]["accuracy"]
        assert (made.config.seed, made.config.steps) == (run["seed"], 12)
        assert (made.config.source_term == "tsa") == (run["method"] == "tsa")
    rows = list(csv.DictReader(Path("b/benchmark.csv").read_text().splitlines()))
    assert len(rows) == 8
    assert r"\begin{tabular}{lrrrr}" in Path("b/benchmark.tex").read_text()
    best = found["standings"][0]
    mean = np.mean([run["accuracy"] for run in found["runs"] if run["method"] == best["method"]])
    assert best["mean"] == pytest.approx(mean)
    page = Path("b/benchmark.md").read_text()
    assert re.search(rf"^\| {best['method']} \| {best['rank']:.1f} \| \**\d", page, re.MULTILINE)

    before, bytes_before = times(), Path("b/benchmark.json").read_bytes()
    assert main(WORDS) == 0
    assert times() == before
    assert Path("b/benchmark.json").read_bytes() == bytes_before
    more = ["benchmark", *TASKS, "--methods", "source-only,tsa,mi", "--seeds", "0,1", *SHORT, "--out", "b"]
    assert main(more) == 0
    assert len(times()) == 8 + 4
    assert {path: time for path, time in times().items() if path in before} == before


def test_a_method_of_ones_own_with_variants(here):
    """Registered in a Python program, it is compared by its name; a variant changes its settings."""

    @METHODS.register("mine")
    class Mine(Method):
        """Nothing but source-only."""

        needs_target = False

        def losses(self, out):
            return {}

    try:
        made = benchmark(
            ["a=source.npz:target.npz"], ["source-only", "mine", "mine+tsa"], baseline="mine", seeds=[0], out="b",
            variants={"mine, small": {"method": "mine", "bottleneck": 2}}, steps=8, bottleneck=8, device="cpu",
        )  # fmt: skip
    finally:
        METHODS.forget("mine")
    assert made.scores["mine"] == made.scores["source-only"]  # the same network, the same batches
    assert [*made.scores] == ["source-only", "mine", "mine+tsa", "mine, small"]
    widths = {run["method"]: RunFolder(made.folder / run["run"]).config.bottleneck for run in made.results["runs"]}
    assert widths == {"source-only": 8, "mine": 8, "mine+tsa": 8, "mine, small": 2}
    assert "over mine, seeds" in (made.folder / "benchmark.md").read_text()


def test_a_method_that_fails_leaves_a_gap_and_the_rest_stands(here, capsys):
    @METHODS.register("broken")
    class Broken(Method):
        """Fails at its first step."""

        def losses(self, out):
            raise RuntimeError("it cannot")

    try:
        assert main([*WORDS[:5], "--methods", "source-only,broken", "--seeds", "0", *SHORT, "--out", "b"]) == 0
    finally:
        METHODS.forget("broken")
    said = capsys.readouterr().out
    assert "failed: broken, there, seed 0: RuntimeError: it cannot" in said
    assert "| broken | – | – | – | – | – | – |" in Path("b/benchmark.md").read_text()
    assert [one["method"] for one in results()["standings"]] == ["source-only"]


def test_labels_that_change_are_measured_again_without_training(here):
    assert main(WORDS) == 0
    states = {path: path.stat().st_mtime_ns for path in Path("b/runs").glob("*/checkpoints/step-*.pt")}
    assert states
    before = results()["standings"]
    write_task(here, shuffle=True)
    words = ["benchmark", *TASKS[:2], *WORDS[5:]]
    assert main(words) == 0
    assert {path: path.stat().st_mtime_ns for path in states} == states
    assert results()["standings"] != before
    assert results()["standings"][0]["mean"] < 0.6


HEARS_CTRL_C = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from tsadapt.cli import main;"
    " sys.exit(main(sys.argv[1:]))"
)


@pytest.mark.parametrize(("number", "jobs"), [(signal.SIGINT, "1"), (signal.SIGKILL, "1"), (signal.SIGINT, "2")])
def test_stopped_and_gone_on_with_it_ends_in_the_same_bits(here, number, jobs):
    words = [*WORDS[:9], *SHORT, "--steps", "400", "--checkpoint-every", "20", "--jobs", jobs, "--out"]
    process = subprocess.Popen([sys.executable, "-c", HEARS_CTRL_C, *words, "b"], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None and not times():
        time.sleep(0.02)
    os.kill(process.pid, number)
    err = process.communicate(timeout=60)[1]
    assert len(times()) < 8
    if number == signal.SIGINT:
        assert process.returncode == 130, err
        assert "the same command resumes" in err
        assert len(results()["runs"]) == len(times())  # the table so far
    assert main([*words, "b"]) == 0
    assert main([*words, "whole"]) == 0
    for name in ("benchmark.json", "benchmark.csv", "benchmark.tex"):
        assert Path("b", name).read_bytes() == Path("whole", name).read_bytes()
    assert len(runs_in("b/runs")) == 8


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "tsa,cdann"], "Unknown method 'cdann'. Did you mean"),
        (["--methods", ""], "needs methods"),
        (["--seeds", "a"], "--seeds is 'a', expected whole numbers"),
        (["--seeds", "1,1"], "expected different numbers"),
        (["--baseline", "dann"], "expected one of the methods: source-only, tsa"),
        (["--jobs", "0"], "--jobs is 0"),
        (["--task", "there=a:b"], "Two tasks are called there"),
        (["--task", "more=a:b"], "a does not exist"),
        (["--variant", "tsa=mi"], "choose another name"),
        (["--variant", "x=tsa,source_free=y"], "--source-free is not for a benchmark"),
        (["--out", "source.npz"], "is a file"),
        (["--out", "."], "is not empty and holds no benchmark"),
    ],
)
def test_mistakes_are_one_line(here, capsys, words, said):
    assert main([*WORDS, *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not Path("b/runs").exists()


def test_a_target_without_labels_is_refused_before_anything_is_trained(here, capsys):
    write_task(here, target_labels=False)
    assert main([*WORDS[:3], *WORDS[5:]]) == 2
    assert "has no labels, and a benchmark measures accuracy" in capsys.readouterr().err
    assert not Path("b/runs").exists()


def test_there_is_nothing_to_show_if_every_run_fails(here):
    with pytest.raises(UserError, match="Every run failed, the first with"):
        benchmark(["a=source.npz:target.npz"], ["tsa"], seeds=[0], out="b", steps=2, network="dtn")
