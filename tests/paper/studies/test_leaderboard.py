import json
from dataclasses import replace

from paper.protocols import PROTOCOLS
from paper.reproduce import reproduce
from paper.request import Request
from paper.results_file import Key
from paper.studies.leaderboard import (
    BASES,
    BEST,
    LEADERBOARD,
    describe_standing,
    draw_standing,
    finalists,
    standings,
)

from tsadapt.objectives.base import METHODS, TARGET_TERMS
from tsadapt.runs.fit import versions

TASKS = [*PROTOCOLS["leaderboard"].tasks]
TITLES = [row.title for row in LEADERBOARD]


def results(accuracies, tasks=TASKS, seed=0):
    """One accuracy for each row and task: that of the row, one more for every further task."""
    return {
        str(Key(title, column, seed)): {"accuracy": value + i, "hash": f"{title}{i}", "versions": versions()}
        for title, value in accuracies.items()
        for i, column in enumerate(tasks)
    }


def test_every_method_and_target_term_has_a_row():
    made = {(row.settings.get("method", "source-only"), *row.settings.get("target_terms", ())) for row in LEADERBOARD}
    assert {m for m, *_ in made} == {*METHODS}
    assert {t for _, *terms in made for t in terms} == {*TARGET_TERMS}
    assert TITLES[:2] == ["source-only", "adabn"]
    assert len(TITLES) == len(set(TITLES))
    for name in BASES:
        assert {name, f"{name} +mi", f"{name} +tsa"} <= {*TITLES}


def test_dann_and_cdan_have_rows_with_sharpness_aware_steps():
    assert TITLES[-2:] == ["dann +sdat", "cdan+e +sdat"]  # after all others, which were there before
    for row in LEADERBOARD[-2:]:
        plain = next(one for one in LEADERBOARD if f"{one.title} +sdat" == row.title)
        assert row.settings == {**plain.settings, "sdat": True}
        task = TASKS[0]
        protocol = PROTOCOLS["leaderboard"]
        sharp, without = (protocol.config(task, 0, **one.settings) for one in (row, plain))
        assert sharp == replace(without, sdat=True)
        assert sharp.hash() != without.hash()


def test_ranks_are_averaged_and_ties_shared():
    found = standings(results({"a": 50.0, "b": 60.0, "c": 50.0}, ["x", "y"]), ["x", "y"])
    assert [(one.title, one.rank, one.mean) for one in found] == [("b", 1.0, 60.5), ("a", 2.5, 50.5), ("c", 2.5, 50.5)]


def test_a_row_without_all_tasks_has_no_rank():
    there = results({"a": 50.0, "b": 60.0}, ["x", "y"])
    del there[str(Key("b", "y", 0))]
    assert [one.title for one in standings(there, ["x", "y"])] == ["a"]
    assert "Not complete yet: b." in describe_standing(there, {})


def test_seeds_are_averaged_before_ranking():
    there = results({"a": 50.0, "b": 60.0}, ["x"]) | results({"a": 90.0}, ["x"], seed=1)
    best = standings(there, ["x"])[0]
    assert (best.title, best.mean, best.seeds) == ("a", 70.0, 2)


def test_further_seeds_are_for_the_best_and_the_papers_bases():
    accuracies = dict(zip(TITLES, range(len(TITLES)), strict=True))
    protocol, rows = PROTOCOLS["leaderboard"], LEADERBOARD
    jobs = finalists(protocol, rows, results(accuracies))
    chosen = {job.row for job in jobs}
    assert {*TITLES[-BEST:]} <= chosen
    assert {"source-only", "adabn", "mi", "tsa", "jada +tsa"} <= chosen
    assert {job.seed for job in jobs} == {1, 2}
    assert len(jobs) == 2 * len(chosen) * len(TASKS)
    one_missing = {k: v for k, v in results(accuracies).items() if not k.startswith(f"{TITLES[5]} |")}
    assert finalists(protocol, rows, one_missing) == []


def test_the_page_shows_gains_costs_and_every_task():
    accuracies = {
        "source-only": 50.0, "adabn": 52.0, "mi": 60.0, "tsa": 59.0, "dann": 55.0, "dann +tsa": 61.0,
        "dann +sdat": 57.0,
    }  # fmt: skip
    page = describe_standing(results(accuracies), {"measured": {"source-only": 2.0, "mi": 3.0}})
    assert "| mi | 2.0 | " in page
    assert "**+8.0 [+8.0, +8.0]** | 1.5× | 1 |" in page
    assert "| source-only | 56.5 | 65.5 | **+9.0 [+9.0, +9.0]** | **-1.0 [-1.0, -1.0]** |" in page
    assert "| dann | 61.5 | 67.5 | **+6.0 [+6.0, +6.0]** | – |" in page
    assert f"| | {' | '.join(TASKS)} |" in page


def test_the_picture(tmp_path):
    draw_standing(
        results({"source-only": 50.0, "adabn": 52.0, "mi": 60.0, "dann +tsa": 61.0, "dann +sdat": 58.0}),
        LEADERBOARD,
        tmp_path / "p.png",
    )
    assert (tmp_path / "p.png").stat().st_size > 5000


def test_a_first_look_trains_some_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    request = Request("leaderboard", quick=True, steps=4, rows=("source-only", "adabn", "mcc"))
    *_, page = reproduce(request, tmp_path / "out")
    text = page.read_text()
    assert "| mcc | " in text
    stored = json.loads((page.parent / "leaderboard.json").read_text())
    assert len(stored["runs"]) == 3
    assert set(stored["extra"]["measured"]) == {"source-only", "adabn", "mcc"}
