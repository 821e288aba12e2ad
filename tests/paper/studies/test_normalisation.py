"""Batch normalisation in adversarial methods: its rows, the tables' choice, and what is stored of a run."""

from dataclasses import replace

import pytest
from paper.protocols import PROTOCOLS
from paper.reproduce import reproduce
from paper.request import Plan, Request
from tests.paper.test_reproduce import kept

from tsadapt.objectives.base import METHODS


def test_the_adversarial_methods_are_there_both_ways():
    jobs = Plan(Request("normalisation", seeds=(0,))).jobs
    ways = {(job.config.method, job.config.separate_bn) for job in jobs}
    assert ways == {(name, apart) for name in ("dann", "cdan+e", "bsp", "bsp+dann", "jada") for apart in (False, True)}


@pytest.mark.parametrize(("table", "data", "apart"), [("table5", "pacs", True), ("table4", "digits", False)])
def test_tables_normalise_as_the_method_does_by_default_or_say_that_they_do_not(table, data, apart):
    jobs = Plan(Request(table, on=data)).jobs
    assert all(job.config.separate_bn == (apart and METHODS[job.config.method].separate_bn) for job in jobs)
    assert any(METHODS[job.config.method].separate_bn for job in jobs)
    assert ("share batch normalisation" in PROTOCOLS[data].text) == (not apart)


def test_a_network_is_judged_with_the_statistics_of_either_domain(tiny, monkeypatch):
    monkeypatch.setitem(PROTOCOLS, "normalisation", replace(PROTOCOLS["tiny"], general=False))
    rows = ("DANN, together", "DANN, apart")
    page = reproduce(Request("normalisation", rows=rows, seeds=(0,)), tiny / "out")[-1].read_text()
    runs = kept(tiny / "out", "normalisation")["runs"]
    assert len(runs) == 4
    for run in runs.values():
        assert all(0 <= run[name] <= 100 for name in ("by_target", "by_source", "discriminator"))
    assert len({run["by_target"] - run["by_source"] for run in runs.values()}) > 1
    mean = sum(run["by_target"] for key, run in runs.items() if key.startswith("DANN, apart")) / 2
    line = next(line for line in page.splitlines()[::-1] if line.startswith("| DANN, apart | "))
    assert f" {mean:.1f} |" in line
