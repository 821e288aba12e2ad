import pytest
import torch
from tests.core.problems import FORMS, problem
from torch.nn import functional as F

from tsadapt.core import ClassMoments, sampled_cross_entropy

close = torch.testing.assert_close


def draw(p, form, strength, samples, seed=0, **more):
    g = torch.Generator().manual_seed(seed)
    return sampled_cross_entropy(p.f, p.y, p.weight, p.bias, *p.statistics(form), strength, samples, g, **more)


@pytest.mark.parametrize("samples", [1, 5])
def test_without_covariance_it_is_the_shifted_cross_entropy(samples):
    p = problem(0)
    still = ClassMoments(p.moments_t.count, p.moments_t.mean, torch.zeros_like(p.moments_t.covariance))
    loss = sampled_cross_entropy(p.f, p.y, p.weight, p.bias, p.moments_s, still, 0.5, samples)
    close(loss, F.cross_entropy((p.f + 0.5 * p.shift[p.y]) @ p.weight.T + p.bias, p.y))


@pytest.mark.parametrize("form", FORMS)
def test_converges_to_the_expectation_as_one_over_root_m(form):
    """Against an independent estimate: features drawn by numpy-like Cholesky-free means, in feature space."""
    p = problem(1, b=3)
    g = torch.Generator().manual_seed(9)
    values, vectors = torch.linalg.eigh(p.moments_t.covariance[p.y])
    root = vectors * values.clamp_min(0).sqrt()[:, None]
    eps = torch.randn(3, 200_000, p.f.shape[1], generator=g, dtype=torch.float64)
    features = (p.f + 0.3 * p.shift[p.y])[:, None] + 0.3**0.5 * eps @ root.mT
    logits = features @ p.weight.T + p.bias
    expected = F.cross_entropy(logits.flatten(0, 1), p.y.repeat_interleave(200_000))
    errors = {m: torch.stack([draw(p, form, 0.3, m, seed) - expected for seed in range(30)]) for m in (8, 512)}
    assert errors[512].mean().abs() < 4 * errors[512].std() / 30**0.5 + 0.01
    assert 4 < errors[8].std() / errors[512].std() < 16  # √(512/8) = 8


@pytest.mark.parametrize("form", FORMS)
def test_gradcheck(form):
    p = problem(2, b=3, dim=3, rows=20)
    source, target = p.statistics(form)

    def loss(f, w, b):
        return sampled_cross_entropy(f, p.y, w, b, source, target, 0.5, 4, torch.Generator().manual_seed(0))

    assert torch.autograd.gradcheck(loss, tuple(t.clone().requires_grad_() for t in (p.f, p.weight, p.bias)))


def test_rank_deficient_moments_have_a_finite_gradient():
    p = problem(3)
    flat = torch.zeros_like(p.moments_t.covariance)
    flat[:, 0, 0] = 1
    weight = p.weight.clone().requires_grad_()
    target = ClassMoments(p.moments_t.count, p.moments_t.mean, flat.requires_grad_())
    loss = sampled_cross_entropy(p.f, p.y, weight, None, p.moments_s, target, 1.0, 8)
    assert torch.autograd.grad(loss, weight)[0].isfinite().all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("policy", ["skip", "official", "global"])
def test_policies(form, policy):
    p = problem(4, b=8)
    p.y = torch.arange(8) % 4
    p.labels_t = p.labels_t.clamp_min(1)
    loss = draw(p, form, 0.5, 6, policy=policy)
    assert loss.isfinite()
    alone = problem(4, b=8)
    alone.labels_t = p.labels_t
    alone.f, alone.y = p.f[p.y == 0], p.y[p.y == 0]
    if policy == "skip":
        close(draw(alone, form, 0.5, 6, policy=policy), F.cross_entropy(alone.logits, alone.y))
    if policy == "official":  # no rows: μ_t = 0 and no spread
        shifted = (alone.f - 0.5 * p.moments_s.mean[0]) @ p.weight.T + p.bias
        close(draw(alone, form, 0.5, 6, policy=policy), F.cross_entropy(shifted, alone.y))


def test_reproducible_and_without_strength_cross_entropy():
    p = problem(5)
    assert torch.equal(draw(p, "projection", 0.5, 3), draw(p, "projection", 0.5, 3))
    assert not torch.equal(draw(p, "projection", 0.5, 3), draw(p, "projection", 0.5, 3, seed=1))
    close(draw(p, "projection", 0.0, 2), F.cross_entropy(p.logits, p.y))


def test_wrong_input_is_named():
    p = problem(6)
    with pytest.raises(ValueError, match="samples is 0, expected at least 1"):
        draw(p, "moments", 0.5, 0)
    with pytest.raises(ValueError, match="strength is -1"):
        draw(p, "moments", -1, 1)
    with pytest.raises(ValueError, match=r"features has shape \(6, 2\)"):
        sampled_cross_entropy(p.f[:, :2], p.y, p.weight, None, p.moments_s, p.moments_t, 0.5, 1)
    with pytest.raises(ValueError, match=r"weight has shape \(5,\)"):
        sampled_cross_entropy(p.f, p.y, p.weight[0], None, p.moments_s, p.moments_t, 0.5, 1)


def test_switches():
    p = problem(7)
    no_shift = draw(p, "moments", 0.5, 4, mean_shift=False)
    still = ClassMoments(p.moments_t.count, p.moments_s.mean, p.moments_t.covariance)
    g = torch.Generator().manual_seed(0)
    close(no_shift, sampled_cross_entropy(p.f, p.y, p.weight, p.bias, p.moments_s, still, 0.5, 4, g))
    no_spread = draw(p, "moments", 0.5, 4, covariance="none")
    close(no_spread, F.cross_entropy((p.f + 0.5 * p.shift[p.y]) @ p.weight.T + p.bias, p.y))
    with pytest.raises(ValueError, match="covariance is 'source'"):
        draw(p, "moments", 0.5, 4, covariance="source")


def test_logits_of_the_network_are_moved_and_not_made_again():
    """With dropout between features and logits, copies start from the logits that there are."""
    p = problem(4)
    g = torch.Generator().manual_seed
    dropped = p.f * (torch.arange(p.f.shape[1]) % 2)
    logits = dropped @ p.weight.T + p.bias
    given = sampled_cross_entropy(p.f, p.y, p.weight, p.bias, p.moments_s, p.moments_t, 0.5, 4, g(0), logits=logits)
    made = sampled_cross_entropy(dropped, p.y, p.weight, p.bias, p.moments_s, p.moments_t, 0.5, 4, g(0))
    close(given, made)
    still = sampled_cross_entropy(p.f, p.y, p.weight, p.bias, p.moments_s, p.moments_t, 0.0, 4, g(0), logits=logits)
    assert torch.equal(still, F.cross_entropy(logits, p.y))
