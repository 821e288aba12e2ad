"""Batches as graphs, their coupling, and rows translated along it: values, what the coupling minimises, limits."""

import itertools

import numpy as np
import ot
import pytest
import torch
from torch.nn import functional as F

from tsadapt.core import graph_coupling, similarity_graph, translation

G = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=G)


def objective(plan, f_s, f_t):
    """½⟨1 − cos, T⟩ + ½ Σ (A^s_ik − A^t_jl)² T_ij T_kl, written out."""
    (a_s, _), (a_t, _) = similarity_graph(f_s), similarity_graph(f_t)
    total = 0.0
    for i, j in itertools.product(range(len(f_s)), range(len(f_t))):
        total += 0.5 * float(plan[i, j]) * (1 - float(F.cosine_similarity(f_s[i], f_t[j], dim=0)))
        for k, m in itertools.product(range(len(f_s)), range(len(f_t))):
            total += 0.5 * float((a_s[i, k] - a_t[j, m]) ** 2 * plan[i, j] * plan[k, m])
    return total


def test_a_graph_naively():
    f = normal(5, 3)
    graph, share = similarity_graph(f)
    for i, j in itertools.product(range(5), repeat=2):
        assert graph[i, j].item() == pytest.approx(max(float(F.cosine_similarity(f[i], f[j], dim=0)), 0))
    torch.testing.assert_close(share, graph.sum(1) / graph.sum())
    assert share.sum().item() == pytest.approx(1)
    again, _ = similarity_graph(7 * f.float())
    torch.testing.assert_close(again, graph, rtol=1e-5, atol=1e-6)


def test_a_graph_of_rows_that_are_nothing_or_opposite():
    graph, share = similarity_graph(torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]))
    assert torch.equal(graph, torch.eye(3).double())
    torch.testing.assert_close(share, torch.full((3,), 1 / 3).double())


def test_the_coupling_has_its_marginals_and_is_better_than_none():
    f_s, f_t = normal(5, 4), normal(6, 4)
    plan = graph_coupling(f_s, f_t)
    p_s, p_t = similarity_graph(f_s)[1], similarity_graph(f_t)[1]
    assert (plan >= 0).all()
    torch.testing.assert_close(plan.sum(1), p_s)
    torch.testing.assert_close(plan.sum(0), p_t)
    assert objective(plan, f_s, f_t) < objective(p_s[:, None] * p_t, f_s, f_t)


def test_no_small_move_within_the_marginals_is_better():
    """Mass moved around any rectangle of the plan leaves the marginals as they are, and does not pay."""
    f_s, f_t = normal(4, 3), normal(4, 3)
    plan = graph_coupling(f_s, f_t)
    best = objective(plan, f_s, f_t)
    tried = 0
    for (i, k), (j, m) in itertools.product(itertools.combinations(range(4), 2), repeat=2):
        for a, b in ((1, -1), (-1, 1)):
            moved = plan.clone()
            moved[i, j] += 1e-3 * a
            moved[k, m] += 1e-3 * a
            moved[i, m] += 1e-3 * b
            moved[k, j] += 1e-3 * b
            if (moved >= 0).all():
                tried += 1
                assert objective(moved, f_s, f_t) > best - 1e-7
    assert tried > 5


def test_a_batch_in_another_order_is_found_again():
    f = normal(6, 5)
    order = torch.randperm(6, generator=G)
    plan = graph_coupling(f, f[order])
    expected = torch.zeros(6, 6, dtype=torch.float64)
    expected[order, torch.arange(6)] = similarity_graph(f)[1][order]
    torch.testing.assert_close(plan, expected)


def test_the_linear_part_alone_is_plain_transport():
    """Rows that are all unlike: both graphs are the identity, and like rows are matched as POT's `emd` does."""
    f_s = torch.eye(4).double()
    f_t = f_s[[2, 0, 3, 1]] + 0.1
    plan = graph_coupling(f_s, f_t)
    apart = 1 - F.normalize(f_s, dim=1) @ F.normalize(f_t, dim=1).T
    share = [np.asarray(similarity_graph(f)[1]) for f in (f_s, f_t)]
    np.testing.assert_allclose(plan.numpy(), ot.emd(*share, apart.numpy()), atol=1e-8)


def test_the_same_features_give_the_same_coupling_and_no_gradient():
    f_s, f_t = normal(8, 4).float().requires_grad_(), normal(7, 4).float().requires_grad_()
    plan = graph_coupling(f_s, f_t)
    assert torch.equal(plan, graph_coupling(f_s, f_t))
    assert not plan.requires_grad


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e20])
def test_features_of_any_size_have_a_coupling(scale):
    plan = graph_coupling(scale * normal(4, 3), scale * normal(3, 3))
    assert plan.isfinite().all()
    assert plan.sum().item() == pytest.approx(1)


def test_translation_by_hand_and_naively():
    """Rows of T sum to p_s, not to one: without normalising, every copy is a small part of a feature."""
    plan, same = normal(4, 5).abs() / 20, torch.rand(4, 5, generator=G) < 0.6
    same[2] = False
    f_t = normal(5, 3)
    copy, matched = translation(plan, same, f_t)
    for i in range(4):
        mass = [float(plan[i, j]) if same[i, j] else 0.0 for j in range(5)]
        assert bool(matched[i]) == (sum(mass) > 0)
        for k in range(3):
            expected = sum(m * float(f_t[j, k]) for j, m in enumerate(mass)) / sum(mass) if sum(mass) else 0.0
            assert copy[i, k].item() == pytest.approx(expected)
    alike, _ = translation(plan, torch.ones(4, 5, dtype=torch.bool), torch.ones(5, 3).double())
    torch.testing.assert_close(alike, torch.ones(4, 3).double())
    torch.testing.assert_close(translation(9 * plan, same, f_t)[0], copy)


def test_translation_passes_a_gradient_to_the_target():
    plan, same = normal(3, 4).abs(), torch.ones(3, 4, dtype=torch.bool)
    assert torch.autograd.gradcheck(lambda f: translation(plan, same, f)[0], normal(4, 2).requires_grad_())


def test_nothing_matches():
    f_t = normal(4, 2).requires_grad_()
    copy, matched = translation(normal(3, 4).abs(), torch.zeros(3, 4, dtype=torch.bool), f_t)
    assert (copy == 0).all()
    assert not matched.any()
    assert (torch.autograd.grad(copy.sum(), f_t)[0] == 0).all()


def test_wrong_shapes():
    with pytest.raises(ValueError, match="a column for each of features_t"):
        translation(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool), torch.zeros(4, 2))
    with pytest.raises(ValueError, match="same_class has shape"):
        translation(torch.zeros(2, 3), torch.zeros(3, 2, dtype=torch.bool), torch.zeros(3, 2))
    with pytest.raises(ValueError, match="features_s has 3 features"):
        graph_coupling(torch.zeros(2, 3), torch.zeros(2, 4))
