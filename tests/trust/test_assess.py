"""The whole assessment, of portfolios made up for it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.selection.pools import candidate, targets

from tsadapt.selection import Predictions
from tsadapt.trust import assess, em_shares, explain_doubtful

CLASSES = ("ant", "bee", "cow", "dog")
TRUTH = np.arange(200) % 4


def pool(wrong=0.2, count=3):
    return [candidate(seed=seed, wrong=wrong) for seed in range(count)]


def test_errors_are_found_and_the_accuracy_is_near():
    trust = assess(pool(), 0, CLASSES, again=[candidate(seed=9, wrong=0.2)], reference=1)
    right = trust.guess == TRUTH
    assert trust.probability[right].mean() > trust.probability[~right].mean() + 0.3
    assert right.mean() in trust.estimate
    assert trust.doubtful[~right].mean() > 0.5
    assert trust.doubtful[right].mean() < 0.1
    assert (trust.second != trust.guess).all()
    assert set(trust.class_shares) == set(trust.source_shares) == set(CLASSES)
    assert all(0.25 in share for share in trust.class_shares.values())
    assert {
        "ATC by entropy of source-only",
        "DoC of chosen",
        "agreement with other methods",
        "agreement with other seeds",
    } <= {*trust.parts}
    assert trust.estimate.value == pytest.approx(trust.probability.mean())


def test_worse_portfolios_are_estimated_lower():
    found = [assess(pool(wrong), 0, CLASSES).estimate for wrong in (0.02, 0.2, 0.5)]
    assert found[0].value > found[1].value > found[2].value
    assert all(one.low <= one.value <= one.high <= 1 for one in found)


def test_fewer_rows_say_less():
    def some(p, n):
        return replace(p, features_t=p.features_t[:n], logits_t=p.logits_t[:n])

    few, many = (assess([some(p, n) for p in pool()], 0, CLASSES).estimate for n in (12, 200))
    assert few.high - few.low > many.high - many.low


def test_missing_parts_are_said():
    alone = assess([candidate()], 0, CLASSES)
    assert any("no other network" in note for note in alone.notes)
    logits = 5 * np.eye(4)[TRUTH]
    without = assess([targets(logits), targets(logits)], 0, CLASSES)
    assert any("No source row was held out" in note for note in without.notes)
    one = candidate()
    some = replace(one, features_v=one.features_v[:12], logits_v=one.logits_v[:12], labels_v=one.labels_v[:12])
    assert any("Only 12 source rows could be held out" in note for note in assess([some, some], 0, CLASSES).notes)
    assert not any(name.startswith(("ATC", "DoC")) for name in without.parts)
    assert without.class_shares["ant"].value == 0.25


def test_a_target_that_one_class_dominates_is_recognised():
    rows = np.flatnonzero((TRUTH == 0) | (np.arange(200) < 12))

    def some(p: Predictions):
        return replace(p, features_t=p.features_t[rows], logits_t=p.logits_t[rows])

    trust = assess([some(candidate(seed=seed, wrong=0.05)) for seed in range(2)], 0, CLASSES)
    assert any("of the target seem to be ant" in note for note in trust.notes)
    assert any("--class-prior estimated" in note for note in trust.notes)


def test_a_member_that_is_not_finite_has_no_part():
    bad = replace(candidate(seed=5), logits_t=np.full((200, 4), np.nan))
    with_bad, without = assess([*pool(), bad], 0, CLASSES), assess(pool(), 0, CLASSES)
    assert with_bad.probability == pytest.approx(without.probability)
    with pytest.raises(ValueError, match="not finite"):
        assess([bad, *pool()], 0, CLASSES)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="expected a place in a pool of 3"):
        assess(pool(), 3, CLASSES)
    with pytest.raises(ValueError, match="2 classes are named"):
        assess(pool(), 0, CLASSES[:2])
    with pytest.raises(ValueError, match=r"logits of shape \(100, 4\)"):
        assess([*pool(), candidate(n=100)], 0, CLASSES)


def test_doubtful_is_explained_in_numbers():
    trust = assess(pool(), 0, CLASSES)
    text = explain_doubtful(trust)
    assert f"{int(trust.doubtful.sum())} of 200 rows are" in text
    assert "below 50%" in text
    assert explain_doubtful(trust, 0.0).endswith("No row is.")
    assert explain_doubtful(trust, 1.1).endswith("are wrong.")


def domain_in_one_class(seed=0, n=300):
    """Source-only that puts a domain which looks different into one class; half of the rows are right."""
    rng = np.random.default_rng(seed)
    y_s, y_t = np.arange(400) % 4, np.arange(n) % 4
    f_s, f_v, f_t = (5 * np.eye(4)[y] + rng.normal(size=(len(y), 4)) for y in (y_s, y_s[:100], y_t))
    f_t = f_t + 4.5 * np.eye(4)[0]
    return Predictions(f_s, f_v, f_v, y_s[:100], f_t, f_t), y_t


def test_shares_do_not_follow_a_source_only_that_puts_all_into_one_class():
    poor, truth = domain_in_one_class()
    assert em_shares(poor.logits_v, poor.labels_v, poor.logits_t)[0] > 0.5  # what EM believes
    good = [
        replace(poor, logits_t=6 * np.eye(4)[truth] + np.random.default_rng(s).normal(size=(300, 4))) for s in (1, 2)
    ]
    trust = assess([poor, *good], 1, CLASSES, reference=0)
    assert all(abs(share.value - 0.25) < 0.02 for share in trust.class_shares.values())
    assert not any("seem" in note for note in trust.notes)


def test_shares_follow_a_good_source_only_where_the_chosen_one_evened_them_out():
    """82 % of one class, and a network that was told that classes are even."""
    rng = np.random.default_rng(0)
    y_s, y_t = np.arange(400) % 4, np.repeat(np.arange(4), [246, 18, 18, 18])
    f_s, f_v, f_t = (5 * np.eye(4)[y] + rng.normal(size=(len(y), 4)) for y in (y_s, y_s[:100], y_t))
    good = Predictions(f_s, f_v, f_v, y_s[:100], f_t, f_t)
    even = replace(good, logits_t=6 * np.eye(4)[np.arange(300) % 4])
    trust = assess([good, even, even], 1, CLASSES, reference=0)
    assert trust.class_shares["ant"].value == pytest.approx(0.82, abs=0.05)
    assert all(share.low <= share.value <= share.high for share in trust.class_shares.values())
    assert trust.class_shares["ant"].low < 0.5  # the members do not agree, and the interval says so
    assert any("of the target seem to be ant" in note for note in trust.notes)


def test_a_missing_class_is_recognised_where_the_chosen_one_gives_it_rows():
    """A network that was told that classes are even gives a quarter of the rows to the class that is missing."""
    rng = np.random.default_rng(0)
    y_s, y_t = np.arange(400) % 4, 1 + np.arange(600) % 3
    f_s, f_v, f_t = (
        np.hstack([5 * np.eye(4)[y] + rng.normal(size=(len(y), 4)), 2 * rng.normal(size=(len(y), 30))])
        for y in (y_s, y_s[:100], y_t)
    )
    f_t = 0.7 * f_t + np.array([3.0, *[0.0] * 33])
    sure = Predictions(f_s, f_v, 2 * f_v[:, :4], y_s[:100], f_t, 2 * f_t[:, :4])
    second = 5 * np.eye(4)[y_t]
    even = replace(sure, logits_t=second + 6 * np.eye(4)[np.where(np.arange(600) % 4 == 0, 0, y_t)])
    trust = assess([sure, even, even], 1, CLASSES, reference=0)
    assert (trust.guess == 0).mean() == 0.25
    assert trust.class_shares["ant"].value == 0
    assert trust.class_shares["ant"].high > 0.2  # the networks say otherwise
    assert [trust.class_shares[name].value for name in CLASSES[1:]] == pytest.approx([1 / 3] * 3)
    assert trust.notes[0] == "The target seems to have hardly any rows of ant."
