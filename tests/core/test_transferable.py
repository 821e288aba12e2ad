import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core import naive
from tests.core.problems import FORMS, problem
from torch.nn import functional as F

from tsadapt.core import (
    ClassMoments,
    FeatureMemory,
    sampled_cross_entropy,
    transferable_cross_entropy,
    transferable_logits,
)

close = torch.testing.assert_close
strengths = st.floats(0.0, 1.0)
# More samples than classes, and fewer: the loss takes another way through its statistics.
SIZES = [(6, 4), (3, 7)]


@pytest.mark.parametrize(("y", "expected"), [(0, math.log(1 + math.exp(0.75))), (1, math.log(1 + math.exp(-0.65)))])
def test_value_by_hand(y, expected):
    weight, f = torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.5, 0.0]])
    two = torch.tensor([2, 2])
    source = ClassMoments(two, torch.zeros(2, 2), torch.zeros(2, 2, 2))
    target = ClassMoments(two, torch.tensor([[0.4, 0.0]]).expand(2, 2), 0.2 * torch.eye(2).expand(2, 2, 2))
    loss = transferable_cross_entropy(f @ weight.T, torch.tensor([y]), weight, source, target, 0.5)
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert loss.item() == pytest.approx({0: 1.136871, 1: 0.420055}[y], abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("b", "classes"), SIZES)
@given(seed=st.integers(0, 1000), strength=strengths)
@settings(max_examples=8, deadline=None)
def test_equals_the_formula(form, b, classes, seed, strength):
    p = problem(seed, b=b, classes=classes)
    expected = naive.transferable_logits(p.logits, p.y, p.weight, p.shift, p.moments_t.covariance, strength)
    z = transferable_logits(p.logits, p.y, p.weight, *p.statistics(form), strength)
    close(z, expected, rtol=1e-9, atol=1e-9)
    own = p.y[:, None]
    close(z.gather(1, own), p.logits.gather(1, own), rtol=0, atol=0 if strength == 0 else 1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("b", "classes"), SIZES)
def test_gradient_has_its_closed_form(form, b, classes):
    p = problem(3, b=b, classes=classes)
    strength = 0.6
    f, weight, bias = (t.clone().requires_grad_() for t in (p.f, p.weight, p.bias))
    loss = transferable_cross_entropy(f @ weight.T + bias, p.y, weight, *p.statistics(form), strength, reduction="sum")
    grad_f, grad_w, grad_b = torch.autograd.grad(loss, (f, weight, bias))

    z = naive.transferable_logits(p.logits, p.y, p.weight, p.shift, p.moments_t.covariance, strength)
    pi = z.softmax(1)
    expected_f, expected_w = torch.zeros_like(p.f), torch.zeros_like(p.weight)
    for i, y in enumerate(p.y.tolist()):
        for c in range(classes):
            if c != y:
                d = p.weight[c] - p.weight[y]
                expected_f[i] += pi[i, c] * d
                along = p.f[i] + strength * p.shift[y] + strength * p.moments_t.covariance[y] @ d
                expected_w[c] += pi[i, c] * along
                expected_w[y] -= pi[i, c] * along
    close(grad_f, expected_f)
    close(grad_w, expected_w)
    close(grad_b, (pi - F.one_hot(p.y, classes)).sum(0))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("b", "classes"), SIZES)
def test_gradcheck(form, b, classes):
    p = problem(1, b=b, classes=classes, dim=3, rows=20)
    source, target = p.statistics(form)
    assert torch.autograd.gradcheck(
        lambda f, w: transferable_cross_entropy(f @ w.T, p.y, w, source, target, 0.7),
        (p.f.clone().requires_grad_(), p.weight.clone().requires_grad_()),
    )


@pytest.mark.parametrize("form", FORMS)
@given(seed=st.integers(0, 1000))
@settings(max_examples=5, deadline=None)
def test_without_strength_it_is_cross_entropy_to_the_bit(form, seed):
    p = problem(seed, dtype=torch.float32)
    weight = p.weight.requires_grad_()
    ours = transferable_cross_entropy(p.logits, p.y, weight, *p.statistics(form), 0.0)
    theirs = F.cross_entropy(p.logits, p.y)
    assert torch.equal(ours, theirs)
    assert torch.equal(*(torch.autograd.grad(loss, weight)[0] for loss in (ours, theirs)))


@given(seed=st.integers(0, 1000), strength=strengths)
@settings(max_examples=8, deadline=None)
def test_properties(seed, strength):
    p = problem(seed)
    g = torch.Generator().manual_seed(seed)
    source, target = p.moments_s, p.moments_t
    loss = transferable_cross_entropy(p.logits, p.y, p.weight, source, target, strength)

    batch = torch.randperm(len(p.y), generator=g)
    close(loss, transferable_cross_entropy(p.logits[batch], p.y[batch], p.weight, source, target, strength))

    perm = torch.randperm(p.classes, generator=g)
    inverse = perm.argsort()
    moved = [ClassMoments(m.count[perm], m.mean[perm], m.covariance[perm]) for m in (source, target)]
    close(loss, transferable_cross_entropy(p.logits[:, perm], inverse[p.y], p.weight[perm], *moved, strength))

    v = torch.randn(p.f.shape[1], generator=g, dtype=torch.float64)
    everywhere = p.weight + v
    close(loss, transferable_cross_entropy(p.f @ everywhere.T + p.bias + 3, p.y, everywhere, source, target, strength))

    # TSA(f, Δμ, Σ) = TSA(f + λΔμ, 0, Σ)
    still = ClassMoments(target.count, target.mean, torch.zeros_like(target.covariance))
    shifted = (p.f + strength * p.shift[p.y]) @ p.weight.T + p.bias
    close(loss, transferable_cross_entropy(shifted, p.y, p.weight, still, target, strength))
    # Σ = 0 leaves the cross-entropy of f + λΔμ
    without = transferable_cross_entropy(p.logits, p.y, p.weight, source, target, strength, covariance="none")
    close(without, F.cross_entropy(shifted, p.y))
    close(without, transferable_cross_entropy(p.logits, p.y, p.weight, source, still, strength))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("b", "classes"), SIZES)
@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_a_strength_for_each_class(form, b, classes, epsilon):
    """A batch of one class at a time has that class's strength."""
    p = problem(3, b=b, classes=classes)
    strengths = torch.linspace(0, 1, classes, dtype=torch.float64)
    each = []
    for i, y in enumerate(p.y.tolist()):
        arguments = (
            p.logits[i : i + 1],
            p.y[i : i + 1],
            p.weight,
            p.shift,
            p.moments_t.covariance,
            float(strengths[y]),
        )
        each.append(naive.smoothed_bound(*arguments, epsilon))
    loss = transferable_cross_entropy(
        p.logits, p.y, p.weight, *p.statistics(form), strengths, reduction="none", label_smoothing=epsilon
    )
    close(loss, torch.stack(each))
    same = torch.full((classes,), 0.4, dtype=torch.float64)
    close(*(transferable_logits(p.logits, p.y, p.weight, *p.statistics(form), s) for s in (same, 0.4)))
    assert torch.autograd.gradcheck(
        lambda w: transferable_cross_entropy(p.f @ w.T, p.y, w, *p.statistics(form), strengths),
        (p.weight.clone().requires_grad_(),),
    )
    with pytest.raises(ValueError, match=r"strength has shape \(2,\), expected a number or"):
        transferable_logits(p.logits, p.y, p.weight, *p.statistics(form), strengths[:2])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("b", "classes"), SIZES)
def test_without_the_common_shift(form, b, classes):
    p = problem(7, b=b, classes=classes)
    centred = p.shift - p.shift.mean(0)
    z = transferable_logits(p.logits, p.y, p.weight, *p.statistics(form), 0.5, common_shift=False)
    close(z, naive.transferable_logits(p.logits, p.y, p.weight, centred, p.moments_t.covariance, 0.5))
    # A class that has no rows in the target has no shift to count.
    p.labels_t = p.labels_t.clamp_min(1)
    known = p.shift[1:]
    shift, covariance = p.shift.clone(), p.moments_t.covariance.clone()
    shift[1:], shift[0], covariance[0] = known - known.mean(0), 0, 0
    z = transferable_logits(p.logits, p.y, p.weight, *p.statistics(form), 0.5, common_shift=False)
    close(z, naive.transferable_logits(p.logits, p.y, p.weight, shift, covariance, 0.5), rtol=1e-8, atol=1e-8)


def test_moving_all_of_the_target_alike_changes_nothing_without_the_common_shift():
    p = problem(7)
    losses = []
    for move in (0.0, 5.0):
        moved = ClassMoments(p.moments_t.count, p.moments_t.mean + move, p.moments_t.covariance)
        arguments = (p.logits, p.y, p.weight, p.moments_s, moved, 0.5)
        losses.append(transferable_cross_entropy(*arguments, common_shift=False))
        losses.append(transferable_cross_entropy(*arguments))
    close(losses[0], losses[2])
    assert abs(losses[1] - losses[3]) > 0.1


def test_a_margin():
    p = problem(2)
    arguments = (p.logits, p.y, p.weight, p.moments_s, p.moments_t, 0.5)
    z = transferable_logits(*arguments)
    z[range(len(p.y)), p.y] -= 0.3
    close(transferable_cross_entropy(*arguments, margin=0.3), F.cross_entropy(z, p.y))
    none = transferable_cross_entropy(*arguments, margin=0.0)
    assert torch.equal(none, transferable_cross_entropy(*arguments))
    assert transferable_cross_entropy(*arguments, margin=0.3) > none


def test_switches():
    p = problem(5)
    source, target = p.moments_s, p.moments_t
    zero = torch.zeros_like(p.shift)
    no_shift = transferable_cross_entropy(p.logits, p.y, p.weight, source, target, 0.5, mean_shift=False)
    close(no_shift, naive.transferable_cross_entropy(p.logits, p.y, p.weight, zero, target.covariance, 0.5))
    isda = transferable_cross_entropy(p.logits, p.y, p.weight, source, None, 0.5, mean_shift=False, covariance="source")
    close(isda, naive.transferable_cross_entropy(p.logits, p.y, p.weight, zero, source.covariance, 0.5))
    neither = transferable_cross_entropy(p.logits, p.y, p.weight, None, None, 0.5, mean_shift=False, covariance="none")
    assert torch.equal(neither, F.cross_entropy(p.logits, p.y))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_reduction(reduction):
    p = problem(2)
    z = transferable_logits(p.logits, p.y, p.weight, p.moments_s, p.moments_t, 0.5)
    loss = transferable_cross_entropy(p.logits, p.y, p.weight, p.moments_s, p.moments_t, 0.5, reduction=reduction)
    close(loss, F.cross_entropy(z, p.y, reduction=reduction))


def test_bounds_the_expected_loss_and_the_gap_closes():
    p = problem(11)
    gaps = []
    for strength in (1.0, 0.1, 0.001):
        bound = transferable_cross_entropy(p.logits, p.y, p.weight, p.moments_s, p.moments_t, strength)
        g = torch.Generator().manual_seed(0)
        drawn = sampled_cross_entropy(
            p.f, p.y, p.weight, p.bias, p.moments_s, p.moments_t, strength, samples=20_000, generator=g
        )
        gaps.append((bound - drawn).item())
    assert gaps[0] > 10 * gaps[1] > 0
    assert gaps[1] > 10 * gaps[2] > 0
    assert abs(gaps[2]) < 0.02


def test_smoothed_value_by_hand():
    """Z = (0, 0.75), of which 0.05 is variance: log(1 + e^0.75) − 0.1·(0.75 − 0.05) for ε = 0.2 and two classes."""
    weight, f = torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.5, 0.0]])
    two = torch.tensor([2, 2])
    source = ClassMoments(two, torch.zeros(2, 2), torch.zeros(2, 2, 2))
    target = ClassMoments(two, torch.tensor([[0.4, 0.0]]).expand(2, 2), 0.2 * torch.eye(2).expand(2, 2, 2))
    loss = transferable_cross_entropy(f @ weight.T, torch.tensor([0]), weight, source, target, 0.5, label_smoothing=0.2)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(0.75)) - 0.1 * 0.7, abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("b", "classes"), SIZES)
@given(seed=st.integers(0, 1000), strength=strengths, epsilon=st.floats(0.0, 1.0))
@settings(max_examples=6, deadline=None)
def test_smoothed_it_equals_the_formula(form, b, classes, seed, strength, epsilon):
    p = problem(seed, b=b, classes=classes)
    expected = naive.smoothed_bound(p.logits, p.y, p.weight, p.shift, p.moments_t.covariance, strength, epsilon)
    arguments = (p.logits, p.y, p.weight, *p.statistics(form), strength)
    close(transferable_cross_entropy(*arguments, label_smoothing=epsilon), expected, rtol=1e-9, atol=1e-9)
    each = transferable_cross_entropy(*arguments, label_smoothing=epsilon, reduction="none")
    close(each.mean(), expected, rtol=1e-9, atol=1e-9)
    close(
        transferable_cross_entropy(*arguments, label_smoothing=epsilon, reduction="sum"),
        b * expected,
        rtol=1e-9,
        atol=1e-9,
    )


def test_smoothed_switches_and_classes_that_are_skipped():
    p = problem(5, b=9)
    p.y = torch.arange(9) % 4
    p.labels_t = p.labels_t.clamp_min(1)  # class 0 has no target rows: plain, smoothed cross-entropy
    shift, covariance = p.shift, p.moments_t.covariance.clone()
    shift[0], covariance[0] = 0, 0
    arguments = (p.logits, p.y, p.weight, *p.statistics("projection"), 0.5)

    def naively(shift, covariance):
        return naive.smoothed_bound(p.logits, p.y, p.weight, shift, covariance, 0.5, 0.1)

    close(transferable_cross_entropy(*arguments, label_smoothing=0.1), naively(shift, covariance))
    still = torch.zeros_like(covariance)
    close(transferable_cross_entropy(*arguments, label_smoothing=0.1, covariance="none"), naively(shift, still))
    close(
        transferable_cross_entropy(*arguments, label_smoothing=0.1, mean_shift=False, covariance="source"),
        naively(torch.zeros_like(shift), p.moments_s.covariance),
    )


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_smoothed_it_bounds_the_expected_loss_and_the_gap_closes(epsilon):
    p = problem(11)
    gaps = []
    for strength in (1.0, 0.1, 0.001):
        arguments = (p.moments_s, p.moments_t, strength)
        bound = transferable_cross_entropy(p.logits, p.y, p.weight, *arguments, label_smoothing=epsilon)
        g = torch.Generator().manual_seed(0)
        drawn = sampled_cross_entropy(
            p.f, p.y, p.weight, p.bias, *arguments, samples=20_000, generator=g, label_smoothing=epsilon
        )
        gaps.append((bound - drawn).item())
    assert gaps[0] > 10 * gaps[1] > 0
    assert gaps[1] > 10 * gaps[2]
    assert abs(gaps[2]) < 0.02


def test_the_smoothed_cross_entropy_of_the_augmented_logits_alone_is_no_bound():
    """Where y is certain, E log Σ exp z = E z_y: the bound is reached, and CE_ε(Z) lies below the expectation."""
    p = problem(11)
    certain = p.logits + 1000 * F.one_hot(p.y, p.classes)
    arguments = (p.moments_s, p.moments_t, 0.1)
    drawn = sampled_cross_entropy(
        p.f, p.y, p.weight, p.bias, *arguments, samples=100_000, generator=torch.Generator().manual_seed(0),
        logits=certain, label_smoothing=0.1,
    )  # fmt: skip
    bound = transferable_cross_entropy(certain, p.y, p.weight, *arguments, label_smoothing=0.1)
    close(bound, drawn, rtol=0, atol=1e-3)
    z = transferable_logits(certain, p.y, p.weight, *arguments)
    assert F.cross_entropy(z, p.y, label_smoothing=0.1) < drawn - 0.01


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("b", "classes"), SIZES)
def test_smoothed_gradcheck(form, b, classes):
    p = problem(1, b=b, classes=classes, dim=3, rows=20)
    source, target = p.statistics(form)
    assert torch.autograd.gradcheck(
        lambda f, w: transferable_cross_entropy(f @ w.T, p.y, w, source, target, 0.7, label_smoothing=0.2),
        (p.f.clone().requires_grad_(), p.weight.clone().requires_grad_()),
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_smoothed_extreme_logits(form, scale):
    p = problem(8, dtype=torch.float32)
    weight, f = (p.weight * scale).requires_grad_(), p.f.clone().requires_grad_()
    loss = transferable_cross_entropy(f @ weight.T, p.y, weight, *p.statistics(form), 0.25, label_smoothing=0.1)
    assert loss.isfinite()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(loss, (f, weight)))


@pytest.mark.parametrize("form", FORMS)
def test_statistics_are_constants(form):
    p = problem(4)
    rows = p.rows_t.clone().requires_grad_()
    memory = FeatureMemory(len(rows), rows.shape[1], p.classes, dtype=rows.dtype)
    memory.write(torch.arange(len(rows)), rows, p.labels_t)
    assert not memory.features.requires_grad
    mean = p.moments_t.mean.clone().requires_grad_()
    covariance = p.moments_t.covariance.clone().requires_grad_()
    weight = p.weight.clone().requires_grad_()
    loss = transferable_cross_entropy(
        p.logits, p.y, weight, p.moments_s, ClassMoments(p.moments_t.count, mean, covariance), 0.5
    )
    assert torch.autograd.grad(loss, (mean, covariance), allow_unused=True, retain_graph=True) == (None, None)
    assert torch.autograd.grad(loss, weight)[0].abs().sum() > 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("policy", ["skip", "official", "global"])
@pytest.mark.parametrize("case", ["empty", "single row", "one class"])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_poor_pseudo_labels_stay_finite(form, policy, case, size):
    p = problem(6, b=9)
    p.y = torch.arange(9) % 4
    p.labels_t = {
        "empty": p.labels_t.clamp_min(1),
        "single row": torch.cat([torch.zeros(1, dtype=torch.int64), p.labels_t[1:].clamp_min(1)]),
        "one class": torch.full_like(p.labels_t, 2),
    }[case]
    weight = (p.weight * size).requires_grad_()
    logits = p.f @ weight.T
    loss = transferable_cross_entropy(logits, p.y, weight, *p.statistics(form), 1.0, policy=policy)
    (grad,) = torch.autograd.grad(loss, weight)
    assert loss.isfinite()
    assert grad.isfinite().all()


@pytest.mark.parametrize("form", FORMS)
def test_policies_by_value(form):
    p = problem(7, b=9)
    p.y = torch.arange(9) % 4
    p.labels_t = p.labels_t.clamp_min(1)  # class 0 has no target rows
    source, target = p.statistics(form)
    covariance, shift = p.moments_t.covariance.clone(), p.shift

    def z(policy, **more):
        return transferable_logits(p.logits, p.y, p.weight, source, target, 0.5, policy=policy, **more)

    def expected(row_shift, row_covariance):
        s, v = shift.clone(), covariance.clone()
        s[0], v[0] = row_shift, row_covariance
        return naive.transferable_logits(p.logits, p.y, p.weight, s, v, 0.5)

    k = p.f.shape[1]
    close(z("skip"), expected(torch.zeros(k), torch.zeros(k, k)), rtol=1e-8, atol=1e-8)
    close(z("skip")[p.y == 0], p.logits[p.y == 0], rtol=0, atol=0)
    close(z("official"), expected(-p.moments_s.mean[0], torch.zeros(k, k)), rtol=1e-8, atol=1e-8)
    share = p.moments_t.count.double() / p.moments_t.count.sum()
    pooled = torch.einsum("c,ckl->kl", share, covariance)
    close(z("global"), expected(p.rows_t.mean(0) - p.rows_s.mean(0), pooled), rtol=1e-8, atol=1e-8)
    # min_count asks for more: the classes that have too few follow the policy as well
    close(z("skip", min_count=10_000), p.logits, rtol=0, atol=0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_extreme_logits(form, scale):
    p = problem(8, dtype=torch.float32)
    weight = (p.weight * scale).requires_grad_()
    f = p.f.clone().requires_grad_()
    loss = transferable_cross_entropy(f @ weight.T, p.y, weight, *p.statistics(form), 0.25)
    grads = torch.autograd.grad(loss, (f, weight))
    assert loss.isfinite()
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("form", ["projection", "running sums"])
@pytest.mark.parametrize("ratio", [1, 30, 300])
def test_a_mean_far_from_zero_costs_few_digits(form, ratio):
    p = problem(9, b=3, classes=7, dim=32, rows=400, dtype=torch.float32)
    p.rows_t = (p.rows_t + ratio).float()
    _source, target = p.statistics(form)
    weight = p.weight.clone().requires_grad_()
    variances = target.variances_along(weight, torch.tensor([1, 4]))
    (grad,) = torch.autograd.grad(variances.sum(), weight)
    w = p.weight.double().requires_grad_()
    exact = p.moments_t.variances_along(w, torch.tensor([1, 4]))
    (exact_grad,) = torch.autograd.grad(exact.sum(), w)
    close(variances.double(), exact, rtol=3e-6, atol=0)
    assert (grad - exact_grad).norm() / exact_grad.norm() < 3e-6


def test_autocast_and_half_precision_compute_in_float32():
    p = problem(10, dtype=torch.float32)
    source, target = p.statistics("projection")
    logits = p.logits
    exact = transferable_cross_entropy(logits, p.y, p.weight, source, target, 0.5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = transferable_cross_entropy(logits, p.y, p.weight, source, target, 0.5)
    assert torch.equal(exact, inside)
    weight = p.weight.bfloat16().requires_grad_()
    loss = transferable_cross_entropy(p.logits.bfloat16(), p.y, weight, source, target, 0.5)
    assert loss.dtype == torch.float32
    assert torch.autograd.grad(loss, weight)[0].dtype == torch.bfloat16


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("b", "classes"), SIZES)
def test_two_losses_before_one_backward(form, b, classes):
    """Gradient accumulation: the second write must not spoil what the first loss keeps for its backward pass."""
    p = problem(12, b=b, classes=classes)
    source, target = p.statistics(form)
    weight = p.weight.clone().requires_grad_()

    def loss():
        return transferable_cross_entropy(p.f @ weight.T, p.y, weight, source, target, 0.5)

    (apart,) = torch.autograd.grad(loss(), weight)
    first = loss()
    if isinstance(target, FeatureMemory):
        target.write(
            torch.arange(5), torch.randn(5, p.f.shape[1], dtype=torch.float64), torch.zeros(5, dtype=torch.int64)
        )
    loss()
    close(torch.autograd.grad(first, weight)[0], apart)


def test_non_contiguous_input():
    p = problem(13)
    source, target = p.statistics("projection")
    loss = transferable_cross_entropy(p.logits, p.y, p.weight, source, target, 0.5)
    wide_weight, wide_y = p.weight.repeat_interleave(2, 1)[:, ::2], p.y.repeat_interleave(2)[::2]
    tall = p.logits.T.contiguous().T
    assert not any(t.is_contiguous() for t in (wide_weight, wide_y, tall))
    close(transferable_cross_entropy(tall, wide_y, wide_weight, source, target, 0.5), loss)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": torch.zeros(6, 3)}, r"logits has shape \(6, 3\), expected \(any, 4\)"),
        ({"labels": torch.zeros(5, dtype=torch.int64)}, r"labels has shape \(5,\), expected \(6,\)"),
        ({"labels": torch.full((6,), 4)}, "labels contains 4, expected values from 0 to 3"),
        ({"labels": torch.full((6,), -1)}, "labels contains -1"),
        ({"labels": torch.zeros(6)}, "labels has dtype torch.float32"),
        ({"weight": torch.zeros(4)}, r"weight has shape \(4,\)"),
        ({"weight": torch.zeros(4, 9)}, "source holds 4 classes of 5 features, expected 4 classes of 9 features"),
        ({"weight": torch.zeros(4, 5, device="meta")}, "weight is on meta but logits is on cpu"),
        ({"logits": torch.zeros(6, 4, dtype=torch.int64)}, "logits has dtype torch.int64"),
        ({"target": None}, "target is None, but mean_shift=True needs it"),
        ({"policy": "ignore"}, "policy is 'ignore', expected 'skip', 'official' or 'global'"),
        ({"covariance": "both"}, "covariance is 'both'"),
        ({"label_smoothing": 1.5}, "label_smoothing is 1.5, expected a number from 0 to 1"),
    ],
)
def test_wrong_input_is_named(change, message):
    p = problem(14)
    arguments = {
        "logits": p.logits,
        "labels": p.y,
        "weight": p.weight,
        "source": p.moments_s,
        "target": p.moments_t,
        "strength": 0.5,
    }
    with pytest.raises((ValueError, TypeError), match=message):
        transferable_cross_entropy(**(arguments | change))
