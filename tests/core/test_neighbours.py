import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsadapt.core import (
    attraction_dispersion_loss,
    balanced_predictions,
    dispersion_strength,
    nearest_rows,
    neighbour_labels,
    neighbours,
)


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def naive_neighbours(features, rows, k, own, eligible):
    found = []
    for i, f in enumerate(features):
        near = [
            (-float(f @ row) / float(f.norm() * row.norm()), j)
            for j, row in enumerate(rows)
            if j != int(own[i]) and bool(eligible[j])
        ]
        found.append({j for _, j in sorted(near)[:k]})
    return found


@given(seed=st.integers(0, 1000), n=st.integers(1, 20), k=st.integers(1, 6), chunk=st.sampled_from([1, 3, 7, 100]))
@settings(max_examples=40, deadline=None)
def test_the_nearest_rows_chunk_by_chunk(seed, n, k, chunk):
    g = torch.Generator().manual_seed(seed)
    features, rows = normal(4, 3, seed=seed), normal(n, 3, seed=seed + 1)
    own, eligible = torch.randint(n, (4,), generator=g), torch.rand(n, generator=g) < 0.7
    before, neighbours.CHUNK = neighbours.CHUNK, chunk
    try:
        place, found = nearest_rows(features, rows, k, own, eligible)
    finally:
        neighbours.CHUNK = before
    assert place.shape == found.shape == (4, min(k, n))
    ours = [set(p[f].tolist()) for p, f in zip(place, found, strict=True)]
    assert ours == naive_neighbours(features, rows, k, own, eligible)


def test_a_row_is_no_neighbour_of_itself_even_among_its_copies():
    """Setting one's own distance to the largest there is leaves it in when few rows are left; index by index does not.

    The index counts, not the place in the batch: a row twice in a batch is left out for both.
    """
    rows = torch.eye(3)[[0, 0, 1]]
    place, found = nearest_rows(rows[[0, 0, 2]], rows, 3, own=torch.tensor([0, 0, 2]))
    assert [set(p[f].tolist()) for p, f in zip(place, found, strict=True)] == [{1, 2}, {1, 2}, {0, 1}]
    assert not nearest_rows(rows[:1], rows[:1], 5, own=torch.tensor([0]))[1].any()


def test_length_is_no_matter_and_neither_is_precision():
    features, rows = normal(5, 4).float(), normal(30, 4, seed=1).float()
    place, _ = nearest_rows(features, rows, 3)
    scaled, _ = nearest_rows(1e4 * features, rows * torch.linspace(1e-3, 1e3, 30)[:, None], 3)
    assert torch.equal(place, scaled)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(nearest_rows(features, rows, 3)[0], place)
    assert nearest_rows(features, rows.half(), 3)[1].all()
    assert nearest_rows(torch.zeros(1, 4), rows, 2)[1].all()  # a feature of no direction is as near to all


def test_balanced_predictions():
    """By hand: squares (1, 0) and (1/4, 1/4), over their columns' sums 5/4 and 1/4."""
    p = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    q = balanced_predictions(p.log().clamp_min(-1e4))
    torch.testing.assert_close(q, torch.tensor([[0.8, 0.0], [0.2, 1.0]]))
    logits = normal(6, 4)
    p = logits.softmax(1)
    naive = [[float(p[j, c] ** 2 / sum(p[i, c] ** 2 for i in range(6))) for c in range(4)] for j in range(6)]
    torch.testing.assert_close(balanced_predictions(logits), torch.tensor(naive, dtype=torch.float64))
    assert not balanced_predictions(logits.requires_grad_()).requires_grad
    extreme = balanced_predictions(1e4 * torch.eye(3)[[0, 0]])  # two classes of exactly no probability
    assert extreme.tolist() == [[0.5, 0, 0], [0.5, 0, 0]]


def test_labels_by_neighbours():
    p = normal(4, 5, 3).softmax(2)
    found = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]).bool()
    label, weight = neighbour_labels(p, found)
    for i in (0, 1, 3):
        kept = [p[i, j].tolist() for j in range(5) if found[i, j]]
        v = [sum(row[c] for row in kept) / len(kept) for c in range(3)]
        assert (label[i].item(), weight[i].item()) == (v.index(max(v)), pytest.approx(max(v)))
    assert weight[2] == 0  # no neighbour yet


def naive_loss(p, near, found, alpha, index):
    b, loss = len(p), 0.0
    for i in range(b):
        loss -= sum(float(p[i] @ near[i, k]) for k in range(near.shape[1]) if found[i, k]) / b
        loss += alpha * sum(float(p[i] @ p[j]) for j in range(b) if index[j] != index[i]) / b
    return loss


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_attraction_and_dispersion_by_loops(alpha):
    logits, near = normal(5, 3).requires_grad_(), normal(5, 4, 3, seed=1).softmax(2)
    found = torch.rand(5, 4, generator=torch.Generator().manual_seed(2)) < 0.6
    index = torch.tensor([7, 3, 7, 1, 0])
    ours = attraction_dispersion_loss(logits, near, found, alpha, index)
    assert ours.item() == pytest.approx(naive_loss(logits.detach().softmax(1), near, found, alpha, index.tolist()))
    plain = attraction_dispersion_loss(logits, near, found, alpha)
    assert plain.item() == pytest.approx(naive_loss(logits.detach().softmax(1), near, found, alpha, range(5)))
    assert torch.autograd.gradcheck(lambda z: attraction_dispersion_loss(z, near, found, alpha, index), logits)


def test_attraction_and_dispersion_in_limiting_cases():
    every = torch.ones(6, 5, dtype=torch.bool)
    certain = torch.eye(3).repeat(2, 1)
    near = certain[:, None].expand(6, 5, 3)
    # All five neighbours alike, and one of the five others in the batch of the same class.
    assert attraction_dispersion_loss(1e4 * certain, near, every).item() == pytest.approx(-5 + 1)
    # Uniform predictions: each product is 1/C.
    uniform = torch.full((6, 5, 3), 1 / 3)
    assert attraction_dispersion_loss(torch.zeros(6, 3), uniform, every, 2.0).item() == pytest.approx(
        -5 / 3 + 2 * 5 / 3
    )
    assert attraction_dispersion_loss(torch.zeros(1, 3), uniform[:1], ~every[:1]).item() == 0


@pytest.mark.parametrize("scale", [1e4, -1e4])
@pytest.mark.parametrize("shape", [(6, 4), (3, 8), (1, 3), (4, 1)])
def test_extreme_logits(scale, shape):
    logits = (scale * normal(*shape)).float().requires_grad_()
    near = logits.detach().softmax(1)[:, None].expand(-1, 2, -1)
    loss = attraction_dispersion_loss(logits, near, torch.ones(shape[0], 2, dtype=torch.bool))
    assert loss.isfinite()
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()


def test_half_precision_computes_in_float32():
    logits = torch.randn(6, 5).bfloat16()
    near, found = torch.rand(6, 2, 5), torch.ones(6, 2, dtype=torch.bool)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = attraction_dispersion_loss(logits, near, found)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(attraction_dispersion_loss(logits.float(), near, found).item(), abs=1e-5)


def test_dispersion_falls():
    assert dispersion_strength(0.0, 2.0) == 2
    assert dispersion_strength(1.0) == pytest.approx(11**-5)
    assert dispersion_strength(0.5, 1.0, decay=0.0) == 1
    assert dispersion_strength(0.5, 1.0, decay=0.75) == pytest.approx(math.exp(-0.75 * math.log(6)))


def test_wrong_arguments_are_named():
    f, rows = torch.zeros(2, 3), torch.zeros(5, 3)
    with pytest.raises(ValueError, match="rows has shape"):
        nearest_rows(f, torch.zeros(5, 4), 1)
    with pytest.raises(ValueError, match="k is 0"):
        nearest_rows(f, rows, 0)
    with pytest.raises(ValueError, match="own has shape"):
        nearest_rows(f, rows, 1, own=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="eligible is"):
        nearest_rows(f, rows, 1, eligible=torch.ones(4, dtype=torch.bool))
    with pytest.raises(ValueError, match="predictions has shape"):
        neighbour_labels(torch.zeros(2, 3, 4), torch.ones(2, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"expected \(2, neighbours, 3\)"):
        attraction_dispersion_loss(f, torch.zeros(2, 4, 5), torch.ones(2, 4, dtype=torch.bool))
