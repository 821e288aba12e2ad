"""Logits as factors give what the table gives, some rows at a time."""

import dataclasses

import numpy as np
import pytest
from tests.selection.pools import candidate

from tsadapt.selection import VALIDATORS, Mixed, logits, scores
from tsadapt.selection.dev import dev_risk
from tsadapt.selection.guard import collapsed
from tsadapt.selection.logits import FactoredLogits, blocks, guesses
from tsadapt.selection.predictions import Predictions
from tsadapt.selection.select import choose
from tsadapt.selection.validators import scores_of


def factored(table):
    """Any table as factors: itself times the identity."""
    half = table / 2
    eye = np.eye(table.shape[1])
    return FactoredLogits(np.concatenate([half, half], 1), np.concatenate([eye, eye], 1), np.full(table.shape[1], 0.25))


def with_factors(p):
    mixed = Mixed(p.mixed.a, p.mixed.b, factored(p.mixed.logits))
    return dataclasses.replace(p, logits_v=factored(p.logits_v), logits_t=factored(p.logits_t), mixed=mixed)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(logits, "BLOCK_CELLS", 30)  # seven rows of four classes
    monkeypatch.setattr(scores, "CLASSES", 3)


def test_blocks_are_the_rows_in_order():
    table = np.random.default_rng(0).normal(size=(20, 4))
    z = factored(table)
    parts = [*blocks(z)]
    assert [len(part) for part in parts] == [7, 7, 6]
    np.testing.assert_allclose(np.concatenate(parts), table + 0.25)
    assert guesses(z).tolist() == table.argmax(1).tolist()
    assert guesses(z[np.array([3, 1])]).tolist() == table[[3, 1]].argmax(1).tolist()
    assert [len(part) for part in blocks(table)] == [20]
    assert guesses(z[:0]).tolist() == []


@pytest.mark.parametrize("name", [name for name in VALIDATORS if not VALIDATORS[name].slow])
def test_validators_see_no_difference(name):
    pool = [candidate(), candidate(1, wrong=0.4)]
    np.testing.assert_allclose(
        VALIDATORS[name].scores([with_factors(p) for p in pool]), VALIDATORS[name].scores(pool), rtol=1e-9
    )


def test_tables_of_classes_in_parts_are_as_those_in_one(monkeypatch):
    p = candidate(classes=11)
    in_parts = {name: VALIDATORS[name](p) for name in ("corr-c", "transfer-score")}
    gram = p.probabilities_t.T @ p.probabilities_t
    assert in_parts["corr-c"] == pytest.approx(np.trace(gram) / np.linalg.norm(gram))
    monkeypatch.setattr(scores, "CLASSES", 1024)
    assert in_parts == pytest.approx({name: VALIDATORS[name](p) for name in in_parts})


def test_choice_and_guard_see_no_difference():
    pool = [candidate(), candidate(1, wrong=0.5), candidate(2, guess=np.zeros(200, dtype=int))]
    kept = [with_factors(p) for p in pool]
    assert collapsed(kept, 0) == collapsed(pool, 0)
    assert choose(kept, reference=0).chosen == choose(pool, reference=0).chosen


def test_what_takes_minutes_with_many_classes_is_not_computed_unasked():
    dense, kept = scores_of(candidate()), scores_of(with_factors(candidate()))
    assert set(dense) - set(kept) == {"bnm", "class-ami", "corr-c", "snd"}


def test_factors_are_saved_and_read_again(tmp_path):
    p = with_factors(candidate())
    _ = p.guess_t  # what is cached must not be saved
    (tmp_path / "p.npz").write_bytes(p.packed())
    again = Predictions.read(tmp_path / "p.npz")
    for a, b in ((again.logits_t, p.logits_t), (again.logits_v, p.logits_v), (again.mixed.logits, p.mixed.logits)):
        assert isinstance(a, FactoredLogits)
        assert all(np.array_equal(a.factors[name], b.factors[name]) for name in b.factors)
    assert again.finite
    broken = dataclasses.replace(p, logits_t=FactoredLogits(*(np.nan * f for f in p.logits_t.factors.values())))
    assert not broken.finite


def test_held_out_losses_by_hand():
    p = with_factors(candidate())
    log_p = np.asarray(p.logits_v) - np.log(np.exp(np.asarray(p.logits_v)).sum(1, keepdims=True))
    losses = np.array([-log_p[i, label] for i, label in enumerate(p.labels_v)])
    assert VALIDATORS["dev"](p) == pytest.approx(dev_risk(losses, p.importance))
