"""The study of presets follows its protocol: which runs come next, and who is chosen."""

import random

import pytest
from paper.request import Plan, Request
from paper.studies.preset import (
    AUGMENTATIONS,
    GRID,
    REFERENCE,
    SCREENED,
    Standing,
    decide,
    describe_preset,
    draw_preset,
    suite_of,
)


def run_all(accuracy):
    """Follow the plan to its end, with accuracies by (title, column, seed); the results, and the runs of each stage."""
    plan, results, stages = Plan(Request("preset")), {}, []
    while new := [job for job in [*plan.jobs, *plan.more(results)] if job.key not in results]:
        stages.append(new)
        for job in new:
            results[job.key] = {"hash": job.config.hash(), "accuracy": accuracy(job.row, job.column, job.seed)}
    return results, stages


def by_title(gains, noise=0.0):
    """80 %, what `gains` adds for titles that begin or end with its keys, and noise of a task and seed."""

    def accuracy(title, column, seed):
        gain = sum(g for name, g in gains.items() if title == name or title.endswith(f" + {name}"))
        base, _, way = title.partition(" + ")
        gain += gains.get(base, 0.0) if way else 0.0
        return 80 + gain + noise * random.Random(f"{title}{column}{seed}").gauss(0, 1)

    return accuracy


def test_every_family_has_twelve_settings_that_differ():
    families = {}
    for one in GRID:
        families.setdefault(one.family, []).append(one)
    assert {len(ones) for ones in families.values()} == {12}
    assert len(AUGMENTATIONS) == 12
    jobs = [job for job in Plan(Request("preset")).jobs if job.seed == 0 and job.column == "PACS: P → C"]
    assert len({job.config.hash() for job in jobs}) == len(jobs) == len(SCREENED)


def test_neighbours_are_one_level_away_in_one_factor():
    def beside(title):
        one = next(one for one in GRID if one.title == title)
        return {other.title for other in GRID if one.is_beside(other)}

    assert beside(REFERENCE) == {"batch MI, β = 0.25", "batch MI, β = 0.1, smoothed"}
    assert beside("memory MI, β = 0.5, smoothed") == {
        "memory MI, β = 0.25, smoothed", "memory MI, β = 1.0, smoothed", "memory MI, β = 0.5",
        "memory MI, β = 0.5, smoothed, warm-up",
    }  # fmt: skip
    assert beside("mcc, smoothed") == {"mcc", "mcc × 0.3, smoothed"}


def test_the_stages_are_screening_augmentations_finalists_and_replication():
    best = "memory MI, β = 0.5, smoothed"
    results, stages = run_all(by_title({best: 3.0, "TSA by purity": 1.5}, noise=0.1))
    design = {"PACS", "digits", "Caltech"}
    suites = [{suite_of(job.column) for job in stage} for stage in stages]
    assert suites == [design, design, design, {"Office-31", "28×28"}]
    assert {job.seed for job in stages[0]} == {job.seed for job in stages[1]} == {0, 1}
    assert {job.seed for job in stages[2]} == {2, 3, 4}
    assert {job.row for job in stages[1] if "batch of 8" not in job.row} == {f"{best} + {way}" for way in AUGMENTATIONS}
    assert {job.seed for job in stages[3] if job.column.startswith("28×28")} == {0, 1}
    plan = Plan(Request("preset"))
    assert {job.key for job in plan.whole(results)[0]} == {*results}
    assert plan.command(results) == "python -m paper preset"  # later stages, with tasks of their own, belong to it
    found = decide(results)
    assert found.base.title == best
    assert found.chosen.title == f"{best} + TSA by purity"
    page = describe_preset(results, {})
    assert f"Chosen: **{best} + TSA by purity**. Without an augmentation: **{best}**." in page
    assert "The augmentation is confirmed, and is part of `strong`." in page
    assert "What the best augmentation adds to its base: Office-31 **+1.5 ± " in page


def test_an_anchored_bound_is_held_against_the_same_without_covariance():
    way = "anchored, neighbours"
    gains = by_title({"mcc": 1.0, "mcc + anchored, neighbours": 3.0}, noise=0.1)
    results, stages = run_all(
        lambda title, *rest: gains(title, *rest) + (2.0 if title.endswith(f"{way}, λ = 0") else 0)
    )
    found = decide(results)
    assert found.finalists[-1].title == f"mcc + {way}"
    control = [job for stage in stages for job in stage if job.row == f"mcc + {way}, λ = 0"]
    assert {job.config.settings["anchored"]["anchor_strength"] for job in control} == {0.0}
    assert {suite_of(job.column) for job in control} == {"PACS", "digits", "Caltech", "Office-31", "28×28"}
    assert {job.seed for job in control if job.column == "Office-31: A → W"} == {0, 1, 2, 3, 4}
    page = describe_preset(results, {})
    assert f"| mcc + {way}, λ = 0 | **+3.0" in page
    assert "Of that its covariance adds, beside the same with λ = 0: Office-31 **+1.0" in page


def test_an_augmentation_that_no_replication_confirms_gives_way_to_its_base():
    best, way, simple = "memory MI, β = 0.5, smoothed", "TSA by purity", "batch MI, β = 0.25, smoothed"
    gains = by_title({best: 3.0, way: 1.5, simple: 2.8}, noise=0.1)

    def accuracy(title, column, seed):
        here = suite_of(column) in ("Office-31", "28×28") and title.endswith(way)
        return gains(title, column, seed) - (0.7 if here else 0.0)

    results, stages = run_all(accuracy)
    found = decide(results)
    assert (found.chosen.title, found.plain.title) == (f"{best} + {way}", simple)
    assert {best, simple} < {job.row for job in stages[3]}
    verdict = f"No replication suite confirms the augmentation, so that `strong` is its base, **{best}**."
    assert verdict in describe_preset(results, {})
    unsure = describe_preset({key: run for key, run in results.items() if "28×28" not in key}, {})
    assert "Whether the augmentation is confirmed is not measured yet." in unsure


def test_a_simpler_finalist_is_preferred_within_half_a_point():
    gains = {"batch MI, β = 0.25, smoothed": 3.0, "memory MI, β = 0.25, smoothed": 3.4}
    found = decide(run_all(by_title(gains))[0])
    assert found.base.title == "memory MI, β = 0.25, smoothed"
    assert found.chosen.title == "batch MI, β = 0.25, smoothed"
    gains["memory MI, β = 0.25, smoothed"] = 3.6
    assert decide(run_all(by_title(gains))[0]).chosen.title == "memory MI, β = 0.25, smoothed"


def test_a_setting_that_loses_a_task_is_out():
    good = by_title({"memory MI, β = 0.5, smoothed": 6.0, "memory MI, β = 1.0": 2.0})

    def accuracy(title, column, seed):
        lost = column == "digits: UCI → MNIST-5k" and title.startswith("memory MI, β = 0.5, smoothed")
        return 77.9 if lost else good(title, column, seed)

    found = decide(run_all(accuracy)[0])
    assert found.base.title != "memory MI, β = 0.5, smoothed"
    assert Standing(run_all(accuracy)[0]).worst("memory MI, β = 0.5, smoothed") == pytest.approx(-2.1)


def test_a_plateau_is_preferred_to_a_peak():
    peak = {"memory MI, β = 0.1": 2.4}
    plateau = {f"memory MI, β = {beta}, smoothed": 2.0 for beta in (0.25, 0.5, 1.0)}
    found = decide(run_all(by_title({**peak, **plateau}))[0])
    assert found.base.title == "memory MI, β = 0.5, smoothed"


def test_suites_count_the_same_whatever_their_tasks():
    def accuracy(title, column, seed):
        return 80 + (3.0 if title == "mcc" and suite_of(column) == "digits" else 0.0)

    results = run_all(accuracy)[0]
    assert Standing(results).balanced("mcc") == pytest.approx(1.0)


def test_further_seeds_do_not_change_who_the_finalists_are():
    """The finalists' own further seeds must not send the study back to other augmentations."""
    close = {"memory MI, β = 0.5, smoothed": 3.0, "memory MI, β = 0.25, smoothed": 2.9}
    good = by_title(close)

    def accuracy(title, column, seed):
        return good(title, column, seed) - (2.0 if seed > 1 and title.startswith("memory MI, β = 0.5") else 0.0)

    results, stages = run_all(accuracy)
    assert len(stages) == 4
    assert decide(results).base.title == "memory MI, β = 0.5, smoothed"


def test_an_unfinished_study_has_a_page_and_a_picture(tmp_path):
    results = {}
    for job in Plan(Request("preset")).jobs:
        if job.seed == 0 and job.row in (REFERENCE, "mcc"):
            results[job.key] = {"hash": job.config.hash(), "accuracy": 80.0 + (job.row == "mcc")}
    assert decide(results) is None
    assert "| mcc | +1.0 | +1.0 | +1.0 | +1.0 | +1.0 | +1.0 |" in describe_preset(results, {})
    draw_preset(results, SCREENED, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
