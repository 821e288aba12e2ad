import dataclasses
import math

import numpy as np
import pytest
from tests.selection.pools import candidate, logits_for, targets

from tsadapt.selection import VALIDATORS, Mixed, Predictions
from tsadapt.selection.mixval import mix, mixval_accuracies
from tsadapt.selection.scores import hopkins
from tsadapt.selection.validators import scores_of

SURE = 60.0
BALANCED = targets(logits_for(np.arange(20) % 5, 5, SURE))
COLLAPSED = targets(logits_for(np.zeros(20, dtype=int), 5, SURE))
UNIFORM = targets(np.zeros((20, 5)))


def score(name, p):
    return float(VALIDATORS[name].scores([p])[0])


@pytest.mark.parametrize(
    ("name", "balanced", "collapsed", "uniform"),
    [
        ("entropy", 0, 0, -math.log(5)),
        ("im", math.log(5), 0, 0),
        ("bnm", 10 / 20, 20**0.5 / 20, 2 / 20),
        ("corr-c", 5**0.5, 1, 1),
        ("snd", math.log(3), math.log(19), math.log(19)),
    ],
)
def test_limiting_values(name, balanced, collapsed, uniform):
    found = [score(name, p) for p in (BALANCED, COLLAPSED, UNIFORM)]
    assert found == pytest.approx([balanced, collapsed, uniform], abs=1e-5)


def test_snd_of_five_pure_clusters_of_ten():
    assert score("snd", targets(logits_for(np.arange(50) % 5, 5, SURE))) == pytest.approx(math.log(9), abs=1e-4)


def test_snd_equals_the_plain_formula_over_blocks():
    p = targets(np.random.default_rng(0).normal(size=(600, 4)))  # more rows than a block
    rows = p.probabilities_t / np.linalg.norm(p.probabilities_t, axis=1, keepdims=True)
    s = rows @ rows.T / 0.05
    s = s[~np.eye(600, dtype=bool)].reshape(600, 599)
    q = np.exp(s - s.max(1, keepdims=True))
    q /= q.sum(1, keepdims=True)
    assert score("snd", p) == pytest.approx(-(q * np.log(q)).sum(1).mean(), rel=1e-5)


def test_snd_and_entropy_love_collapse():
    """What the guard is for: both put one class for all above predictions that are right."""
    for name in ("snd", "entropy"):
        good = targets(logits_for(np.arange(40) % 5, 5, 4.0))
        collapsed = targets(logits_for(np.zeros(40, dtype=int), 5, 8.0))
        v = VALIDATORS[name]
        goodness = v.goodness(v.scores([good, collapsed]))
        assert goodness[1] > goodness[0], name


def test_rankme():
    assert score("rankme", targets(np.zeros((6, 2)), np.eye(6))) == pytest.approx(6)
    assert score("rankme", targets(np.zeros((6, 2)), np.ones((6, 3)))) == pytest.approx(1, abs=1e-5)
    assert score("rankme", targets(np.zeros((6, 2)), np.zeros((6, 3)))) == 1


def test_class_ami():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    features = 10 * np.eye(3)[labels] + 0.1 * rng.normal(size=(60, 3))
    assert score("class-ami", targets(logits_for(labels, 3), features)) == pytest.approx(1)
    shuffled = rng.permutation(labels)
    assert score("class-ami", targets(logits_for(shuffled, 3), features)) < 0.2
    assert score("class-ami", targets(logits_for(0 * labels, 3), features)) == 0
    assert np.isfinite(score("class-ami", targets(logits_for(labels, 3), np.ones((60, 3)))))  # no clusters at all


def test_hopkins():
    rng = np.random.default_rng(0)
    clusters = 10 * rng.normal(size=(4, 3))[np.arange(400) % 4] + 0.01 * rng.normal(size=(400, 3))
    assert hopkins(clusters) > 0.95
    assert hopkins(rng.uniform(size=(2000, 2))) == pytest.approx(0.5, abs=0.1)
    assert hopkins(np.ones((10, 2))) == 0.5
    assert math.isnan(hopkins(np.ones((1, 2))))


def test_transfer_score_of_a_simplex():
    """Class weights of a regular simplex are as even as can be; every part is then at its best."""
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 3
    angles = 2 * np.pi * np.arange(3) / 3
    simplex = np.stack([np.cos(angles), np.sin(angles)], 1)
    features = 9 * simplex[labels] + 0.01 * rng.normal(size=(300, 2))
    p = dataclasses.replace(targets(logits_for(labels, 3, SURE), features), weight=simplex[None])
    assert score("transfer-score", p) == pytest.approx(hopkins(features) + 1, abs=1e-6)
    lopsided = dataclasses.replace(p, weight=np.array([[[1.0, 0], [1, 0], [1, 0]]]))
    assert score("transfer-score", lopsided) == pytest.approx(hopkins(features) + 1 - (2 * np.pi / 3) ** 2, abs=1e-6)


def test_source_accuracy_and_holdout():
    assert score("source-accuracy", candidate()) == 1
    for name in ("source-accuracy", "iwcv", "dev"):
        assert VALIDATORS[name].needs_holdout
        assert math.isnan(score(name, BALANCED))


def test_mixval_by_hand_and_by_a_callable():
    guess = np.arange(40) % 2
    rows = np.eye(2)[guess] * np.linspace(1, 1.1, 40)[:, None]

    def linear(a, b, share):
        return share * rows[a] + (1 - share) * rows[b]

    mixed = mix(guess, linear, seed=1)
    assert (mixed.a != mixed.b).all()
    assert mixval_accuracies(guess, mixed) == (1, 1)  # a linear network keeps its word

    def stubborn(a, b, share):
        return np.tile([1.0, 0.0], (len(a), 1))

    same, different = mixval_accuracies(guess, mix(guess, stubborn, seed=1))
    assert same == pytest.approx(0.5, abs=0.2)  # one class for all: right for the pairs of that class alone
    assert different == pytest.approx(0.5, abs=0.3)
    assert mix(np.array([0]), linear).logits.shape == (0, 2)  # one row has nobody to be mixed with


def test_mixval_ranks_both_kinds_of_pairs():
    guess = np.array([0, 0, 1])
    a, b = np.array([0, 0]), np.array([1, 2])

    def of(same, different):
        return dataclasses.replace(
            targets(logits_for(guess, 2)), mixed=Mixed(a, b, logits_for(np.array([1 - same, 1 - different]), 2))
        )

    pool = [of(1, 1), of(1, 0), of(0, 0), targets(logits_for(guess, 2))]
    found = VALIDATORS["mixval"].scores(pool)
    assert found[0] > found[1] > found[2]
    assert math.isnan(found[3])
    assert VALIDATORS["mixval"].scores([of(1, 0)])[0] == 0.5


def test_ensv_agrees_with_the_majority():
    right, wrong = targets(logits_for(np.arange(8) % 2, 2)), targets(logits_for((1 + np.arange(8)) % 2, 2))
    assert VALIDATORS["ensv"].scores([right, right, wrong]).tolist() == [1, 1, 0]
    with pytest.raises(ValueError, match="same target rows"):
        VALIDATORS["ensv"].scores([right, targets(np.zeros((3, 2)))])


@pytest.mark.parametrize("name", [*VALIDATORS])
def test_the_order_of_rows_counts_for_nothing(name):
    if VALIDATORS[name].slow:
        pytest.skip("its networks see rows in an order")
    p = candidate(n=600)
    order = np.random.default_rng(7).permutation(600)
    mixed = p.mixed
    back = np.argsort(order)
    turned = dataclasses.replace(
        p,
        features_t=p.features_t[order],
        logits_t=p.logits_t[order],
        mixed=Mixed(back[mixed.a], back[mixed.b], mixed.logits),
    )
    # Those that draw rows, or split them, are equal up to what is drawn.
    loose = {"dev": 0.35, "iwcv": 0.35, "transfer-score": 0.05}.get(name, 1e-6)
    if VALIDATORS[name].alone is None:
        other = candidate(1, n=600, wrong=0.3)
        turned_other = dataclasses.replace(
            other,
            features_t=other.features_t[order],
            logits_t=other.logits_t[order],
            mixed=Mixed(back[other.mixed.a], back[other.mixed.b], other.mixed.logits),
        )
        found = VALIDATORS[name].scores([turned, turned_other])
        assert found == pytest.approx(VALIDATORS[name].scores([p, other]))
        assert found[0] != found[1]
    else:
        assert score(name, turned) == pytest.approx(score(name, p), rel=loose)


@pytest.mark.parametrize("name", [*VALIDATORS])
def test_poison_gives_no_score_and_does_no_harm(name):
    v = VALIDATORS[name]
    if v.slow:
        pytest.skip("takes its time; its weights are dev's but for the classifier")
    good = candidate()
    bad = dataclasses.replace(good, logits_t=np.full_like(good.logits_t, np.nan))
    scores = v.scores([good, bad])
    assert np.isfinite(scores[0])
    assert np.isnan(scores[1])
    assert v.goodness(scores).argmax() == 0
    for p in (candidate(size=1e4), candidate(size=0)):
        assert np.isfinite(v.scores([p])[0])
    assert not np.isinf(v.scores([candidate(n=1)])[0])  # one row may have no score, but breaks nothing


def test_every_validator_says_what_it_is():
    for name in VALIDATORS:
        v = VALIDATORS[name]
        assert v.what.endswith(".")
        assert v.span
        assert v.fails
    quick = scores_of(candidate())
    assert "im" in quick
    assert not {"ensv", "mixval", "dev-mlp"} & set(quick)
    assert scores_of(BALANCED)["dev"] is None


def test_a_validator_of_a_third_party(monkeypatch):
    """As an entry point of a module that registers it, it is there once, and scores."""
    from tsadapt import registry
    from tsadapt.selection import validators

    class Entry:
        name = "rows"

        def load(self):
            @validators.validator("rows", higher=True, span="1 …", fails="always")
            def rows(p):
                """How many rows there are."""
                return float(len(p.logits_t))

            return rows

    monkeypatch.setattr(validators.VALIDATORS, "_things", dict(validators.VALIDATORS._things))
    monkeypatch.setattr(validators.VALIDATORS, "_complete", False)

    class Entries:
        def select(self, group):
            return [Entry()] if group == "tsadapt.validator" else []

    monkeypatch.setattr(registry, "_entry_points", Entries)
    assert VALIDATORS["rows"].scores([BALANCED]).tolist() == [20]
    assert VALIDATORS["rows"](BALANCED) == 20


def test_saved_and_read_again(tmp_path):
    p = candidate()
    (tmp_path / "p.npz").write_bytes(p.packed())
    again = Predictions.read(tmp_path / "p.npz")
    for field in dataclasses.fields(p):
        if field.name != "mixed":
            assert np.array_equal(getattr(again, field.name), getattr(p, field.name))
    assert np.array_equal(again.mixed.logits, p.mixed.logits)
    from tsadapt.errors import UserError

    (tmp_path / "broken.npz").write_bytes(p.packed()[:100])
    with pytest.raises(UserError, match=r"broken\.npz cannot be read"):
        Predictions.read(tmp_path / "broken.npz")


def test_a_hundred_thousand_rows_stay_within_memory():
    """SND compares all rows with all: 40 GB at once, but a block of them at a time."""
    import resource

    rng = np.random.default_rng(0)
    p = targets(rng.normal(size=(100_000, 6)), rng.normal(size=(100_000, 16)))
    p = dataclasses.replace(p, weight=rng.normal(size=(1, 6, 16)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in VALIDATORS:
        if VALIDATORS[name].alone is not None and not VALIDATORS[name].needs_holdout:
            assert np.isfinite(score(name, p)), name
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1.5e6  # kB
