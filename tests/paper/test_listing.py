"""How long a table is expected to take."""

from dataclasses import replace

import pytest
from paper.catalogue import RECIPES
from paper.listing import STARRED, expected_time, status_lines
from paper.protocols import PROTOCOLS, missing
from paper.rows import Row


@pytest.fixture
def protocol(tiny):
    return with_steps_and_seconds(3000, 1.0)


def with_steps_and_seconds(steps, seconds):
    return replace(PROTOCOLS["tiny"], settings={**PROTOCOLS["tiny"].settings, "steps": steps}, seconds=seconds)


def test_all_runs_of_all_tasks_count(protocol):
    recipe = replace(RECIPES["table5"], rows=[Row("a", {}), Row("b", {})], seeds=(0, 1, 2))
    assert expected_time(recipe, protocol, ["A → B"]) == "5.0 h"  # 2 rows, 3 seeds, 50 minutes each
    assert expected_time(recipe, protocol, ["A → B", "B → C"]) == "10.0 h"
    assert expected_time(recipe, with_steps_and_seconds(100, 1.0), ["A → B"]) == "10 min"
    assert expected_time(replace(recipe, more_seconds=60), with_steps_and_seconds(100, 1.0), ["A → B"]) == "16 min"


def test_a_task_may_be_slower(protocol):
    slower = replace(protocol, seconds_of_task={"B → C": 3.0})
    recipe = replace(RECIPES["table5"], rows=[Row("a", {})], seeds=(0,))
    assert expected_time(recipe, slower, ["A → B"]) == "50 min"
    assert expected_time(recipe, slower, ["B → C"]) == "2.5 h"


def test_what_was_never_timed(protocol):
    assert "never timed" in expected_time(RECIPES["table5"], replace(protocol, seconds=None), ["A → B"])


def test_the_footnote_is_there_with_a_row_that_refers_to_it(tiny, monkeypatch):
    monkeypatch.delenv("TSADAPT_DATA", raising=False)
    missing.cache_clear()
    assert STARRED not in status_lines("table5")
    settings = {**PROTOCOLS["tiny"].settings, "backbone": "resnet50"}
    monkeypatch.setitem(PROTOCOLS, "tiny", replace(PROTOCOLS["tiny"], settings=settings))
    lines = status_lines("table5")
    assert any("--on tiny: 1 min*" in line for line in lines)
    assert STARRED in lines
    missing.cache_clear()
