"""table2: what the augmentation adds to mutual information, with intervals over the seeds."""

import json
from dataclasses import replace
from statistics import mean

from paper.analyses.worth import augmentation_worth, interval
from paper.protocols import PROTOCOLS
from paper.reproduce import reproduce
from paper.request import Request
from scipy import stats


def test_an_interval_is_students():
    values = [0.5, 1.7, 0.9]
    low, high = stats.t.interval(0.95, 2, loc=mean(values), scale=stats.sem(values))
    assert interval(values) == f"{mean(values):+.1f} ± {(high - low) / 2:.1f}"
    assert interval([1.0, 1.0]) == "**+1.0 ± 0.0**"
    assert interval([]) == "–"


def test_differences_are_of_the_same_seed_and_task():
    def runs(title, numbers):
        return {f"{title} | {key}": {"accuracy": n} for key, n in numbers.items()}

    results = {
        **runs("DANN +MI", {"A → W | 0": 80.0, "A → W | 1": 70.0, "D → A | 0": 60.0}),
        **runs("DANN +TSA", {"A → W | 0": 81.0, "A → W | 1": 73.0, "D → A | 0": 59.0, "D → A | 1": 99.0}),
        **runs("JADA +TSA", {"A → W | 0": 50.0}),
    }
    for key in results:
        if "+TSA" in key:
            results[key] |= {
                "last_record": dict.fromkeys(
                    ("shift_norm", "class_spread", "shift_term", "variance_term", "logit_size"), 1.0
                ),
                "oracle_pseudo_label_accuracy": [],
            }
    text, *_ = augmentation_worth(PROTOCOLS["office31"], [], ["A → W", "D → A"], results, {}, False, None)
    assert f"| DANN | {interval([1.0, 3.0])} | -1.0 | +0.0 |" in text
    assert "| JADA |" not in text
    assert "| A → W, DANN | – | 1.00 | 1.00 | 1.00 | 1.00 |" in text


def test_the_page_has_them(tiny):
    rows = ("source-only +MI", "source-only +TSA")
    written = reproduce(Request("table2", on="tiny", rows=rows, seeds=(0, 1)), tiny / "out")
    runs, page = json.loads(written[0].read_text())["runs"], written[-1].read_text()
    less = [
        runs[f"source-only +TSA | A → B | {seed}"]["accuracy"] - runs[f"source-only +MI | A → B | {seed}"]["accuracy"]
        for seed in (0, 1)
    ]
    assert f"| source-only | {interval(less)} | " in page
    assert "| A → B, source-only | " in page
    assert "· the paper" not in page


def test_a_protocol_of_the_same_tasks_stands_beside_the_paper_and_says_what_is_unlike(tiny, monkeypatch):
    at_home = replace(PROTOCOLS["tiny"], beside="office31", unlike="The paper trains all of it.")
    at_home = replace(at_home, tasks={"A → W": at_home.tasks["A → B"]})
    monkeypatch.setitem(PROTOCOLS, "tiny", at_home)
    rows = ("source-only", "source-only +TSA", "JADA")
    page = reproduce(Request("table2", on="tiny", rows=rows, seeds=(0,)), tiny / "out")[-1].read_text()
    assert "The paper trains all of it." in page
    assert page.count("| · the paper | 68.4 |") == page.count("| · the paper | 94.8 |") == 1
    assert page.count("· the paper") == 2  # it has no JADA
    other = reproduce(Request("figure-sensitivity", on="tiny", rows=("CDAN+E",), seeds=(0,)), tiny / "out")[-1]
    assert "The paper trains" not in other.read_text()  # its home is Office-Home
