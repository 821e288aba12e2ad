import dataclasses

import numpy as np
import pytest
from tests.selection.pools import candidate, logits_for

from tsadapt.errors import UserError
from tsadapt.selection import select
from tsadapt.selection.guard import agreement_beyond_chance, collapsed, effective_classes
from tsadapt.selection.select import CONSENSUS, Choice, choose, oracle_judgement, selectors, validator_lines

TRUTH = np.arange(200) % 4


def accuracy(p):
    return float((p.guess_t == TRUTH[: len(p.guess_t)]).mean())


def pool(seed=0):
    """Source-only (40 % wrong, unsure), and candidates that are better in steps."""
    worse = [candidate(seed, wrong=0.4, size=2, noise=1.0)]
    return [*worse, *(candidate(seed + i, wrong=wrong) for i, wrong in enumerate((0.3, 0.2, 0.05, 0.25)))]


def poisoned(kind):
    good = candidate(5)
    if kind == "one class":
        return dataclasses.replace(good, logits_t=logits_for(np.zeros(200, dtype=int), 4, 50.0))
    if kind == "nan":
        logits = good.logits_t.copy()
        logits[3, 1] = np.nan
        return dataclasses.replace(good, logits_t=logits)
    if kind == "one sample":
        return dataclasses.replace(good, logits_t=good.logits_t[:1], features_t=good.features_t[:1], mixed=None)
    if kind == "permuted":  # as confident and even as can be, and all wrong
        return candidate(5, guess=(TRUTH + 2) % 4, size=50.0)
    raise ValueError(kind)


def without_held_out(p):
    return dataclasses.replace(p, features_v=p.features_v[:0], logits_v=p.logits_v[:0], labels_v=p.labels_v[:0])


def test_consensus_takes_the_best():
    choice = choose(pool(), reference=0)
    assert choice.chosen == 3
    assert choice.out == {}
    assert choice.by == CONSENSUS
    assert "best of 5" in choice.why


@pytest.mark.parametrize("by", [by for by in selectors() if by != "dev-mlp"])  # which takes its time
@pytest.mark.parametrize("kind", ["one class", "nan", "one sample"])
def test_poison_never_wins(by, kind):
    candidates = [*pool(), poisoned(kind), poisoned(kind)]
    for reference in (0, None):
        choice = choose(candidates, by, reference)
        assert choice.chosen < 5
        assert {5, 6} <= set(choice.out)


def test_permuted_classes_are_caught_by_what_source_only_was_sure_of():
    candidates = [*pool(), poisoned("permuted")]
    assert "agrees with source-only no more than by chance" in collapsed(candidates, 0)[5]
    assert choose(candidates, "entropy", 0).chosen != 5
    assert choose(candidates, "entropy", 0, guard=False).chosen == 5  # what the guard is for


def test_collapse_wins_without_the_guard():
    for by in ("snd", "entropy"):
        candidates = [*pool(), poisoned("one class")]
        assert choose(candidates, by, 0, guard=False).chosen == 5
        assert choose(candidates, by, 0).chosen != 5


def test_source_only_is_kept_when_nothing_beats_it():
    good = candidate(0, wrong=0.02, size=9, noise=0.2)
    choice = choose(
        [candidate(1, wrong=0.4, size=1, noise=2.0), good, candidate(2, wrong=0.5, size=1, noise=2.0)], reference=1
    )
    assert choice.chosen == 1
    assert "source-only is kept" in choice.why
    only = choose([good, poisoned("one class")], reference=0)
    assert only.chosen == 0
    assert "source-only is kept" in only.why


def test_equal_to_source_only_is_not_better():
    same = candidate(0)
    assert choose([same, same], reference=1).chosen == 1


def test_a_winner_needs_a_better_mean_and_most_votes(monkeypatch):
    """Source-only 6,6,2,2,2; A 1,1,3,3,3 has the better mean but two votes of five; B 5,5,1,1,1 has both."""
    ranks = np.array([[6, 6, 2, 2, 2], [1, 1, 3, 3, 3], [5, 5, 1, 1, 1]], dtype=float)
    made = {name: ranks[:, v] for v, name in enumerate(select.VOTERS)}
    monkeypatch.setattr(select, "_scored", lambda pool, racing, names: (dict(made), {**made}))
    three = [candidate(i) for i in range(3)]
    assert choose(three, reference=0).chosen == 2
    assert choose(three, reference=None).chosen == 1
    made.update({name: ranks[[0, 1, 0], v] for v, name in enumerate(select.VOTERS)})
    kept = choose(three, reference=0)  # A alone does not have the votes
    assert kept.chosen == 0
    assert "better mean rank, but dev, corr-c speak for it" in kept.why


def test_the_preferred_candidate_is_chosen_unless_it_is_out_or_no_better_than_source_only():
    candidates = pool()
    assert choose(candidates, reference=0).chosen == 3
    choice = choose(candidates, reference=0, preferred=1)  # better than source-only, and worse than the best
    assert (choice.chosen, choice.preferred) == (1, 1)
    assert "best on average where labels are known" in choice.why
    assert choose(candidates, reference=None, preferred=1).chosen == 1
    assert choose(candidates, reference=3, preferred=1).chosen == 3
    collapsed_one = [*candidates, poisoned("one class")]
    assert choose(collapsed_one, reference=0, preferred=5).chosen == 3
    assert choose(candidates, reference=0, preferred=0).chosen == 3


def test_a_missing_score_is_no_bad_score():
    """A validator that cannot score all candidates does not vote."""
    with_rows, without = candidate(0, wrong=0.5), without_held_out(candidate(1))
    assert "dev" not in choose([without, with_rows], reference=0).why
    with pytest.raises(UserError, match="in all of them"):
        choose([without, with_rows], "dev", 0)


def test_a_broken_source_only_is_never_chosen():
    for guard in (True, False):
        assert choose([poisoned("nan"), *pool()[1:]], "im", 0, guard=guard).chosen != 0


def test_without_a_held_out_part_the_others_vote():
    none = [without_held_out(p) for p in pool()]
    choice = choose(none, reference=0)
    assert "dev" not in choice.why
    assert choice.chosen == 3
    with pytest.raises(UserError, match="--holdout"):
        choose(none, "dev")


def test_the_order_of_candidates_counts_for_nothing():
    candidates = pool()
    order = [3, 1, 4, 0, 2]
    turned = choose([candidates[i] for i in order], reference=order.index(0))
    assert order[turned.chosen] == choose(candidates, reference=0).chosen


def test_wrong_names_and_empty_pools():
    with pytest.raises(UserError, match="Did you mean 'entropy'"):
        choose(pool(), "entrpy")
    with pytest.raises(UserError, match="None of the 2 candidates"):
        choose([poisoned("nan"), poisoned("nan")])
    with pytest.raises(ValueError, match="no candidates"):
        choose([])


def test_guard_values():
    assert effective_classes(np.arange(40) % 4, 4) == pytest.approx(4)
    labels = np.arange(40) % 4
    assert agreement_beyond_chance(labels, labels, 4) == 1
    assert agreement_beyond_chance(np.zeros(9, dtype=int), np.zeros(9, dtype=int), 4) == 0
    two = candidate(classes=2), candidate(classes=2, guess=np.zeros(200, dtype=int))
    assert set(collapsed(two, 0)) == {1}


def test_a_source_of_few_classes_in_the_target_is_no_collapse():
    """Where source-only itself sees two of four classes, a candidate may as well."""
    few = TRUTH % 2
    assert collapsed([candidate(0, guess=few), candidate(1, guess=few)], 0) == {}


def test_oracle_judgement():
    ranks = {"a": np.array([1.0, 2, 3]), "b": np.array([3.0, 2, 1]), "c": np.array([np.nan, 1, 2])}
    choice = Choice(2, "b", "", {name: -r for name, r in ranks.items()}, ranks, {})
    said = oracle_judgement(choice, np.array([0.9, 0.8, 0.7]))
    assert said["a"] == {"accuracy": 0.9, "regret": 0.0, "rank_correlation": pytest.approx(1)}
    assert said["b"]["regret"] == pytest.approx(0.2)
    assert said["b"]["rank_correlation"] == pytest.approx(-1)
    assert said["c"]["accuracy"] == 0.8


def test_every_validator_is_listed():
    lines = validator_lines()
    assert len(lines) == len(selectors())
    assert all("is better" in line and "Fails" in line for line in lines)
