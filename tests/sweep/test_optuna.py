from pathlib import Path

import pytest
from tests.sweep.words import SHORT, choice
from tests.tasks import runs_in

from tsadapt.cli import main
from tsadapt.sweep import search

OPTUNA = ["sweep", "source.npz", "target.npz", "--search", "optuna", *SHORT, "--out", "s"]


def test_optuna_searches_and_resumes(here, capsys):
    pytest.importorskip("optuna")
    words = [*OPTUNA, "--grid", "lambda0=0.05..1", "--grid", "steps=20..30"]
    assert main([*words, "--trials", "2"]) == 0
    assert "guided by dev" in capsys.readouterr().err
    runs = {path.name for path in runs_in("s/runs")}
    assert len(runs) == 3
    assert main([*words, "--trials", "3"]) == 0
    more = {path.name for path in runs_in("s/runs")}
    assert runs < more
    assert len(more) == 4
    assert set(choice("s")["overrides"]) <= {
        "lambda0",
        "steps",
        "method",
        "source_term",
        "target_terms",
        "term_weight",
        "sdat",
    }
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
    assert len(runs_in("s/runs")) == 3


def _stop(planned, *rest):
    Path("stopped").write_text(planned[0].out.name)
    raise KeyboardInterrupt


def test_what_is_wrong_with_a_storage_is_known_before_training(here, capsys):
    pytest.importorskip("optuna")
    assert main([*OPTUNA, "--grid", "lambda0=0.1,0.2", "--storage", "nonsense"]) == 2
    assert "--storage nonsense cannot be opened" in capsys.readouterr().err
    assert not [*Path("s").glob("runs/*")]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:pass%40word@127.0.0.1:1/x", "mysql+pymysql://me:pass@word@127.0.0.1:1/x",
        "sqlite:///nowhere/x.db?password=pass%40word", "nonsense://me:pass@word@host",
    ],
)  # fmt: skip
def test_a_password_in_the_storage_is_not_printed(here, capsys, url):
    pytest.importorskip("optuna")
    assert main([*OPTUNA, "--grid", "lambda0=0.1,0.2", "--storage", url]) == 2
    said = capsys.readouterr().err
    assert "cannot be opened" in said
    assert "***" in said
    assert "pass%40word" not in said
    assert "pass@word" not in said


def test_a_storage_that_fails_on_the_way_is_one_line(here, monkeypatch, capsys):
    optuna = pytest.importorskip("optuna")

    def fail(study, *given, **named):
        raise optuna.exceptions.StorageInternalError("database is locked\nsecond line")

    monkeypatch.setattr(optuna.study.Study, "ask", fail)
    assert main([*OPTUNA, "--grid", "lambda0=0.1,0.2", "--trials", "1"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith("failed; run the same command to go on: database is locked")
