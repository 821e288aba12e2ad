"""The study of trust: rows are changed as said, a small task goes from runs to page, and that says what is missed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paper.catalogue import RECIPES
from paper.jobs import Job, Workspace
from paper.protocols import PROTOCOLS
from paper.reproduce import reproduce
from paper.request import Request
from paper.studies import trust_runs
from paper.studies.trust import CHANGED_COLUMNS, FORMULAS, measure_trust
from paper.studies.trust_page import describe_trust, recognised, recovered
from paper.studies.trust_runs import AS_IT_IS, DOMINATED, LACKING, PRIORS, changed_rows
from tests.runs.conftest import write_task

from tsadapt.trust.assess import OFF, TASKS, WORST

STORED = Path(__file__).parents[3] / "paper/results/trust.json"


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    settings = {"network": "mlp", "bottleneck": 8, "steps": 12, "batch_size": 16, "candidates": 1, "holdout": 0.2}
    tasks = {"A → B": ("source.npz", "target.npz")}
    monkeypatch.setitem(PROTOCOLS, "trust", replace(PROTOCOLS["trust"], tasks=tasks, settings=settings, of_task={}))


def test_changed_rows_lack_a_class_or_are_dominated():
    y = np.arange(700) % 7
    for seed in range(5):
        share = np.bincount(y[changed_rows(y, LACKING, seed)], minlength=7)
        assert sorted(share) == [0, 100, 100, 100, 100, 100, 100]
        share = np.bincount(y[changed_rows(y, DOMINATED, seed)], minlength=7)
        assert share.max() == 100
        assert share.max() / share.sum() == pytest.approx(0.82, abs=0.01)
        assert (changed_rows(y, DOMINATED, seed) == changed_rows(y, DOMINATED, seed)).all()


def test_from_runs_to_page(small, tmp_path, monkeypatch):
    written = reproduce(Request("trust"), tmp_path / "out")
    (run,) = json.loads(written[0].read_text())["runs"].values()
    assert {*run["accuracies"]} == {"source-only", "adabn", "paper", "strong", "bsp+mi"}
    assert run["accuracy"] == run["accuracies"][run["chosen"]]
    assert run["estimate"]["low"] <= run["estimate"]["value"] <= run["estimate"]["high"]
    assert run["holds"] == (run["estimate"]["low"] <= run["accuracy"] <= run["estimate"]["high"])
    assert run["settings"]["formulas"] == FORMULAS
    assert (
        f"| A → B | {run['chosen']} | {run['accuracy']:.1f} | {run['estimate']['value']:.1f} |"
        in written[-1].read_text()
    )
    monkeypatch.setattr(trust_runs, "train_run", lambda *_, **__: pytest.fail("trained twice"))
    reproduce(Request("trust"), tmp_path / "out")


def test_a_changed_target_is_trained_with_every_class_prior(small, tmp_path):
    config = PROTOCOLS["trust"].config("A → B", 0)
    found = measure_trust(Job(DOMINATED, "A → B", 0, config), Workspace(tmp_path / "work", tmp_path))
    assert found["shares"]["largest"]["true"] == pytest.approx(82, abs=2)
    assert {*found["priors"]["strong"]} == {*PRIORS}
    assert found["rows"] < 120
    assert "agreement with other seeds" not in found["parts"]


def run_of(accuracy=80.0, value=82.0, auroc=0.9, softmax=0.8, notes=(), missing=(), **more):
    return {
        "chosen": "strong", "accuracy": accuracy, "estimate": {"value": value, "low": 70.0, "high": 90.0},
        "holds": 70 <= accuracy <= 90, "parts": {"DoC of chosen": 99.0}, "auroc": auroc, "auroc_softmax": softmax,
        "calibration_error": 3.0, "calibration_error_softmax": 15.0,
        "doubtful": {"share": 10.0, "wrong": 60.0, "wrong_elsewhere": None},
        "shares": {"distance": 2.0, "distance_of_predictions": 4.0, "hold": 95.0, "notes": [*notes],
                   "missing": [*missing], "largest": {"class": "dog", "true": 82.0, "estimated": 79.0}},
        **more,
    }  # fmt: skip


def page(**runs):
    columns = {"office": "Office-31 A → W", "caltech": "Caltech A → C", "pacs": "PACS P → A"}
    return describe_trust({f"{AS_IT_IS} | {columns[name]} | 0": run for name, run in runs.items()}, {})


def test_bars_are_of_the_suites_that_took_no_part():
    text = page(office=run_of(), caltech=run_of(80, 90), pacs=run_of(50, 90))
    assert "wrong by 6.0 points on average and by 10.0 at worst" in text
    assert "missed: read the estimate as a rough guess" in text
    assert "+0.100 against" in text
    assert "(the bar of 5 on average is met)" in page(office=run_of(), pacs=run_of(50, 90))
    assert "hardly better than the softmax's" in page(office=run_of(auroc=0.81))
    assert "**70 to 90**" in page(office=run_of(accuracy=95.0))
    assert "| DoC of chosen | – | 19.0 | – |" not in text
    assert "| DoC of chosen | 49.0 | 19.0 | 19.0 |" in text
    assert page(office=run_of(auroc=None, softmax=None)).count("–") >= 2  # no row is wrong


def test_changed_targets_have_a_table():
    priors = {"strong": {"uniform": 30.0, "estimated": 70.0, "oracle": 80.0}}
    dominated = run_of(notes=["82% of the target seem to be dog, and 10% of the source."], priors=priors)
    lacking = run_of(missing=["cat"], priors={"strong": {"uniform": 80.0, "estimated": 80.0, "oracle": 80.4}})
    results = {f"{DOMINATED} | PACS P → A | 0": dominated, f"{LACKING} | PACS P → A | 0": lacking}
    text = describe_trust(results, {})
    assert f"| PACS P → A | {DOMINATED} | 82, 79 | yes | 30.0 | 70.0 | 80.0 | 80 % |" in text
    assert f"| PACS P → A | {LACKING} | 82, 79 | no | 80.0 | 80.0 | 80.4 | – |" in text
    assert "One class dominates: 80 % of the mean difference are recovered." in text
    named = run_of(missing=["cat"], notes=["The target seems to have hardly any rows of cat, emu."])
    assert recognised(LACKING, named)
    assert not recognised(LACKING, lacking)
    assert not recognised(DOMINATED, run_of(missing=["cat"], notes=named["shares"]["notes"]))
    assert recovered({"uniform": 80.0, "estimated": 70.0, "oracle": 90.0}) == -1.0


def test_columns_of_changed_targets_exist():
    assert {*CHANGED_COLUMNS} <= {*PROTOCOLS["trust"].tasks}
    assert [row.title for row in RECIPES["trust"].rows] == [AS_IT_IS, DOMINATED, LACKING]


def test_what_the_page_says_of_estimates_is_what_was_measured():
    runs = json.loads(STORED.read_text(encoding="utf-8"))["runs"]
    off = [
        abs(run["estimate"]["value"] - run["accuracy"])
        for key, run in runs.items()
        if key.startswith((f"{AS_IT_IS} | Office", f"{AS_IT_IS} | Caltech"))
    ]
    assert (len(off), round(np.mean(off), 1), round(max(off), 1)) == (TASKS, OFF, WORST)
    assert all(run["settings"]["formulas"] == FORMULAS for run in runs.values())
