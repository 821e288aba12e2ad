"""The fuzzer counts what it should count: planted failures are found, sound commands are not called failures."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from benchmarks.fuzz import BAD, Fuzzer, import_everything, summary
from benchmarks.fuzz_cases import KINDS, Case, make_case

ROW = "the only row"


def planted(words):
    """Commands that go wrong in every way there is; `words` are the way, and a file to read."""
    what, *_ = words
    if what == "traceback":
        raise ValueError("planted")
    if what == "hang":
        time.sleep(60)
    if what == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if what in ("read", "warned"):
        text = Path("data.txt").read_text()
        Path("o.csv").write_text(text)
        if what == "warned" and text != ROW:
            print("data.txt is damaged: going on without it", file=sys.stderr)
    if what == "outside":
        Path("data.txt").write_text("mine now")
    if what in ("refused", "noisy"):
        print("wrong\n" * (1 if what == "refused" else 50), file=sys.stderr)
        return 2
    return 0


@pytest.fixture
def fuzzer(tmp_path):
    fuzzer = Fuzzer(tmp_path / "fuzz", planted, seconds=10)
    fuzzer.stage.mkdir(parents=True)
    (fuzzer.stage / "data.txt").write_text(ROW)
    return fuzzer


def damaged(here):
    (here / "data.txt").write_text("another row")


@pytest.mark.parametrize(
    ("word", "noticeable", "outcome"),
    [
        ("fine", True, "ok"), ("refused", True, "refused"), ("noisy", True, "noisy"), ("traceback", True, "traceback"),
        ("hang", True, "hang"), ("crash", True, "crash"), ("read", True, "silent change"), ("read", False, "ok"),
        ("warned", True, "ok"), ("outside", True, "wrote outside"),
    ],
)  # fmt: skip
def test_planted_outcomes_are_counted(fuzzer, word, noticeable, outcome):
    case = Case(0, "files", [word], "planted", damaged, ("o.csv",), ("o.csv",), noticeable)
    [(_, found)] = fuzzer.run(iter([case]))
    assert found.name == outcome
    text = summary([(case, found)], seed=0)
    assert ("--seed 0 --case 0" in text) == (outcome in (*BAD, "noisy"))


def test_a_hang_is_over_in_time_and_two_run_side_by_side(fuzzer):
    cases = [Case(n, "files", ["hang"], "planted") for n in range(2)]
    fuzzer.seconds = 5
    began = time.monotonic()
    assert [found.name for _, found in fuzzer.run(iter(cases), jobs=2)] == ["hang", "hang"]
    assert time.monotonic() - began < 9.5


def test_seeded_cases_run_and_repeat(tmp_path):
    fuzzer = Fuzzer(tmp_path / "fuzz")
    import_everything()
    fuzzer.prepare()
    cases = [make_case(0, number, fuzzer.stage) for number in range(24)]
    again = [make_case(0, number, fuzzer.stage) for number in range(24)]
    assert [(case.words, case.wrong) for case in cases] == [(case.words, case.wrong) for case in again]
    found = list(fuzzer.run(iter(cases)))
    assert {case.kind for case, _ in found} == set(KINDS)
    assert {"ok", "refused"} <= {outcome.name for _, outcome in found}
    assert not [(case, outcome) for case, outcome in found if outcome.name in ("hang", "crash")]
