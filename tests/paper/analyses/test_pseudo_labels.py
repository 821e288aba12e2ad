"""base-methods: the diagnostics of a run, watched while it trains."""

import json

from paper.protocols import PROTOCOLS, with_steps
from paper.reproduce import reproduce
from paper.request import Plan, Request
from paper.rows import VARIANTS

from tsadapt.objectives.base import METHODS


def test_every_variant_of_every_method_is_a_run():
    jobs, columns = Plan(Request("base-methods")).whole({})
    assert len(columns) == 4
    assert len(jobs) == 4 * (5 * 4 + 2) * 3 + 3
    assert {job.config.method for job in jobs} <= set(METHODS)
    assert all(":" in name for job in jobs for name in (job.config.source, job.config.target))  # names, not paths
    assert [row.columns for row in VARIANTS if row.columns] == [("UCI → MNIST-5k",)]


def test_a_run_is_watched_stored_and_not_done_twice(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    short = with_steps(PROTOCOLS["base-methods"], 4, "short", batch_size=8, log_every=2)
    monkeypatch.setitem(PROTOCOLS, "base-methods", short)
    rows = ("jada +tsa", "bsp +tsa, β = 0.01")
    request = Request("base-methods", rows=rows, columns=("uci->mnist-5k",), seeds=(1,))
    written = reproduce(request, tmp_path / "out")
    runs = json.loads(written[0].read_text())["runs"]
    assert set(runs) == {f"{row} | UCI → MNIST-5k | 1" for row in ("JADA +TSA", "BSP +TSA, β = 0.01")}
    run = runs["JADA +TSA | UCI → MNIST-5k | 1"]
    assert [step for step, _ in run["oracle_pseudo_label_accuracy"]] == [1, 2, 4]
    assert all(0 <= right <= 1 for _, right in run["oracle_pseudo_label_accuracy"])
    assert {"shift_norm", "variance_term", "gradient_share"} <= set(run["last_record"])
    page = written[-1].read_text()
    assert f"| JADA +TSA | {run['accuracy']:.1f} (1 of 3 seeds) |" in page
    assert "| UCI → MNIST-5k, JADA | " in page
    capsys.readouterr()
    reproduce(request, tmp_path / "out")
    assert "nothing to train" in capsys.readouterr().err
