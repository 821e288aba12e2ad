"""The bound around target rows: its labels, its covariance, its start and its refreshes, written out."""

import math

import pytest
import torch
from tests.configs import changed, run_config
from tests.objectives.test_target_terms import STEPS, B, C, K, N, Remembered, Rows, made
from torch.nn import functional as F

from tsadapt.core import FeatureMemory, centroid_labels, product_labels
from tsadapt.errors import UserError
from tsadapt.objectives.base import METHODS, Method
from tsadapt.objectives.objective import check_objective
from tsadapt.objectives.target_rows import averaged_logits, remembered_features


def naive_bound(logits, y, weight, rows, labels, strength):
    """CE(z + ½λV^y, y), with the covariance of the rows labelled y built as a matrix, in float64."""
    mine = rows[labels == y].double()
    centred = mine - mine.mean(0)
    covariance = centred.T @ centred / len(mine)
    d = (weight - weight[y]).double()
    v = torch.stack([one @ covariance @ one for one in d])
    return F.cross_entropy((logits.double() + 0.5 * strength * v)[None], torch.tensor([y]))


def expected(rows, out, labels, weights, strength, gamma):
    """γ·Σ w·bound/Σ w over the rows of the batch that have a label, averaged over the heads."""
    index = out.target.index.tolist()
    total = 0.0
    for head, memory in zip(out.heads, rows.memories, strict=True):
        own = torch.where(memory.labels < C, labels, C)
        for i, j in enumerate(index):
            if labels[j] < C:
                bound = naive_bound(head.target.logits[i], int(labels[j]), head.weight, memory.features, own, strength)
                total = total + weights[i] * bound / len(out.heads)
    mass = sum(float(w) for w, j in zip(weights, index, strict=True) if labels[j] < C)
    return gamma * total / mass


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("way", ["centroids", "product"])
def test_by_centroids_and_by_products(heads, way):
    rows = Rows(heads)
    term = made("anchored", anchor_labels=way, anchor_refresh=3, anchor_strength=0.7, anchor_weight=0.4)
    labels, seen = torch.full((N,), C), Remembered()
    generator = torch.Generator().manual_seed(0)
    estimate = product_labels if way == "product" else centroid_labels
    refreshed = []
    for t in range(1, 14):
        out = rows.out(torch.randperm(20, generator=generator)[:6], progress=t / STEPS, scale=0.5 + t / 9)
        seen.see(out, averaged_logits(out).detach().softmax(1))
        loss = term(out)
        if t <= 6:  # t0 = 0.3 of 20 steps
            assert loss == 0
            assert torch.equal(term.labels, labels)
            continue
        if t in (9, 12) or (labels[out.target.index] == C).any():  # every third step, and where a row has none
            refreshed.append(t)
            index = torch.tensor(sorted(seen.rows))
            features, _ = remembered_features(out)
            labels[index] = estimate(features[index], torch.stack([seen.rows[j] for j in index.tolist()]))
        assert torch.equal(term.labels, labels)
        torch.testing.assert_close(
            loss.double(), expected(rows, out, labels, [1.0] * 6, 0.7, 0.4), rtol=1e-4, atol=1e-5
        )
        assert term.describe(out) == {"anchored_rows": pytest.approx(float((labels < C).float().mean()))}
    assert refreshed[0] == 7
    assert len(refreshed) < 7  # not every step
    assert (labels[20:] == C).all()  # rows never seen have no label
    assert len({*labels[:20].tolist()}) > 1


@pytest.mark.parametrize("heads", [1, 2])
def test_by_neighbours(heads):
    rows, kept = Rows(heads), Remembered()
    term = made("anchored", anchor_labels="neighbours", neighbours=3, anchor_start=0.0)
    labels = torch.full((N,), C)
    for t, batch in enumerate([[0, 1, 2, 3], [4, 5, 6, 7, 8, 9], [2, 3, 10, 11]], start=1):
        out = rows.out(batch, progress=t / 4)
        p = averaged_logits(out).detach().softmax(1)
        kept.see(out, p**2 / (p**2).sum(0))
        v = torch.stack([torch.stack([kept.rows[j] for j in near]).mean(0) for near in kept.near(rows, out, 3)])
        weights, found = v.max(1)
        labels[out.target.index] = found
        loss = term(out)
        assert torch.equal(term.labels, labels)
        torch.testing.assert_close(loss.double(), expected(rows, out, labels, weights, 1.0, 0.1), rtol=1e-4, atol=1e-5)


def test_a_value_by_hand():
    """Two rows of class 1 at (0, ±1), weights (0, 0) and (0, 2): Σ = diag(0, 1), V_0 = 4; z = (0, ±2) + ½·4·(1, 0)."""
    rows = Rows(classes=2, rows=2)
    rows.features = [torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, -1.0, 0.0, 0.0]])]
    rows.weights = [torch.tensor([[0.0] * K, [0.0, 2.0, 0.0, 0.0]])]
    term = made("anchored", rows=2, classes=2, anchor_start=0.0, anchor_refresh=STEPS, anchor_weight=1.0)
    term.labels.fill_(1)
    loss = term(rows.out([0, 1], progress=0.5))
    each = [math.log(1 + math.exp(2 - z)) for z in (2.0, -2.0)]
    assert loss.item() == pytest.approx(sum(each) / 2, abs=1e-5)


def test_without_spread_it_is_the_cross_entropy_with_its_labels():
    rows, term = Rows(), made("anchored", anchor_strength=0.0, anchor_start=0.0, anchor_weight=2.0)
    out = rows.out(range(B), progress=0.5)
    loss = term(out)
    torch.testing.assert_close(loss, 2 * F.cross_entropy(out.target.logits, term.labels[:B]))
    wide = made("anchored", anchor_start=0.0, anchor_weight=2.0)
    assert wide(rows.out(range(B), progress=0.5)) > loss  # a bound of the mean over copies, which only adds


def test_gradcheck():
    rows = Rows()
    rows.out(range(N))  # the memory is full, and stays as it is
    term = made("anchored", anchor_start=0.0, anchor_refresh=STEPS)
    term.labels[:] = torch.arange(N) % C
    index = torch.arange(6)

    def loss(f, w):
        out = rows.out(index, progress=0.45, observe=False)
        view = type(out.target)(f, f @ w.T, index)
        head = type(out.heads[0])(view, view, w, None)
        return term(type(out)(**{**vars(out), "target": view, "heads": (head,)}))

    f, w = rows.features[0][:6].double().requires_grad_(), rows.weights[0].double().requires_grad_()
    assert torch.autograd.gradcheck(loss, (f, w))
    assert all(grad.abs().sum() > 0 for grad in torch.autograd.grad(loss(f, w), (f, w)))


def test_rows_without_a_feature_count_for_nothing():
    rows, term = Rows(), made("anchored", anchor_start=0.0, anchor_refresh=STEPS)
    term(rows.out(range(10), progress=0.5))
    rows.memories[0] = FeatureMemory(N, K, C, second_moments=False)  # their features are gone
    alone = rows.out([0], progress=0.55)
    torch.testing.assert_close(term(alone), 0.1 * F.cross_entropy(alone.target.logits, term.labels[:1]))
    # A feature that is not finite is not kept, and gives the row no label.
    out = rows.out([0, 25], progress=0.55, observe=False)
    torch.testing.assert_close(term(out), 0.1 * F.cross_entropy(out.target.logits[:1], term.labels[:1]))
    assert term.labels[25] == C
    assert term(rows.out([26, 27], progress=0.55, observe=False)) == 0


class Curved(Method):
    """A head that is not linear."""

    linear = False

    def losses(self, out):
        return {}


def test_a_head_that_is_not_linear_is_refused():
    METHODS.register("curved")(Curved)
    try:
        config = run_config("a", "b", method="curved")
        check_objective(config)
        with pytest.raises(UserError, match="anchored augments features before a linear head"):
            check_objective(changed(config, target_terms=("anchored",)))
    finally:
        METHODS.forget("curved")
