"""Statistics of rows with labels and weights of one's own, against their formulas and a memory of the same rows."""

import pytest
import torch
from tests.core.problems import problem

from tsadapt.core import FeatureMemory, RowStatistics, projection, transferable_cross_entropy

close = torch.testing.assert_close
C, K, N = 4, 5, 40


def rows(seed=0):
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(N, K, generator=g, dtype=torch.float64) + 3
    labels = torch.randint(C + 1, (N,), generator=g)  # C: no class
    labels[labels == 2] = 1  # and class 2 has none
    return features, labels, torch.rand(N, generator=g, dtype=torch.float64)


def naive(features, labels, weights):
    """Count, mean and covariance of every class, written out."""
    found = []
    for c in range(C):
        mine = [j for j in range(N) if labels[j] == c and weights[j] > 0]
        total = sum(float(weights[j]) for j in mine) or 1.0
        mean = sum((weights[j] * features[j] for j in mine), torch.zeros(K, dtype=torch.float64)) / total
        spread = torch.zeros(K, K, dtype=torch.float64)
        for j in mine:
            spread += weights[j] * torch.outer(features[j] - mean, features[j] - mean) / total
        found.append((len(mine), mean, spread))
    return found


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("some", [None, torch.tensor([3, 0]), torch.tensor([2])], ids=["all", "two", "an empty one"])
@pytest.mark.parametrize("tiles", [False, True])
def test_they_equal_the_formula(weighted, some, tiles, monkeypatch):
    if tiles:
        monkeypatch.setattr(projection, "MOST_CELLS", 99)
    features, labels, v = rows()
    v[:3] = 0  # rows that do not count
    of = RowStatistics(features, labels, C, v if weighted else None)
    expected = naive(features, labels, v if weighted else torch.ones(N))
    which = range(C) if some is None else some.tolist()
    count, mean = of.class_means(some)
    assert count.tolist() == [expected[c][0] for c in which]
    close(mean, torch.stack([expected[c][1] for c in which]))
    weight = torch.randn(C, K, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    table = of.variances_along(weight, some)
    written_out = torch.stack(
        [torch.stack([(w - weight[y]) @ expected[y][2] @ (w - weight[y]) for w in weight]) for y in which]
    )
    close(table, written_out)
    pull = torch.randn(table.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    close(*(torch.autograd.grad((one * pull).sum(), weight)[0] for one in (table, written_out)))
    close(of.moments().covariance, torch.stack([one[2] for one in expected]))
    close(of.total_variances(), torch.stack([one[2].trace() for one in expected]))
    a = of.factor(3)
    close(a.T @ a, expected[3][2])


@pytest.mark.parametrize("tiles", [False, True])
def test_gradcheck(tiles, monkeypatch):
    if tiles:
        monkeypatch.setattr(projection, "MOST_CELLS", 99)
    features, labels, v = rows()
    of = RowStatistics(features, labels, C, v)
    weight = torch.randn(C, K, dtype=torch.float64, requires_grad=True)
    for some in (None, torch.tensor([1, 3])):
        assert torch.autograd.gradcheck(lambda w, some=some: of.variances_along(w, some), (weight,))


def test_equal_weights_are_none_and_a_row_of_weight_two_is_two_rows():
    features, labels, _ = rows()
    plain = RowStatistics(features, labels, C).moments()
    equal = RowStatistics(features, labels, C, torch.full((N,), 0.3)).moments()
    close(equal.mean, plain.mean)
    close(equal.covariance, plain.covariance)
    twice = RowStatistics(torch.cat([features, features[:7]]), torch.cat([labels, labels[:7]]), C)
    weights = torch.cat([torch.full((7,), 2.0), torch.ones(N - 7)])
    heavy = RowStatistics(features, labels, C, weights)
    close(heavy.moments().covariance, twice.moments().covariance)
    close(heavy.pooled().mean, twice.pooled().mean)
    close(heavy.pooled().covariance, twice.pooled().covariance)


@pytest.mark.parametrize("policy", ["skip", "global"])
def test_with_a_memorys_own_labels_the_loss_is_that_of_the_memory(policy):
    p = problem(3, b=9)
    p.y = torch.arange(9) % 4
    p.labels_t = p.labels_t.clamp_min(1)  # class 0 has no rows in the target
    source, target = p.statistics("projection")
    assert isinstance(target, FeatureMemory)
    of = RowStatistics(target.features, target.labels, p.classes)
    losses = [
        transferable_cross_entropy(p.logits, p.y, p.weight, source, one, 0.5, policy=policy) for one in (target, of)
    ]
    close(*losses)
    close(of.pooled().covariance, target.pooled().covariance)
    close(of.pooled().mean, target.pooled().mean)


def test_no_rows_at_all():
    of = RowStatistics(torch.zeros(3, K), torch.full((3,), C), C, torch.zeros(3))
    assert of.class_means()[0].tolist() == [0] * C
    weight = torch.randn(C, K, requires_grad=True)
    table = of.variances_along(weight)
    assert (table == 0).all()
    assert (torch.autograd.grad(table.sum(), weight)[0] == 0).all()
    assert of.factor(1).shape == (0, K)


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match=r"weights has shape \(2,\), expected \(3,\)"):
        RowStatistics(torch.zeros(3, K), torch.zeros(3, dtype=torch.int64), C, torch.ones(2))
    with pytest.raises(ValueError, match="labels has shape"):
        RowStatistics(torch.zeros(3, K), torch.zeros(2, dtype=torch.int64), C)
