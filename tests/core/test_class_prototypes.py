"""Class prototypes and the discrepancies of TPN and SimNet: by hand, against loops, gradients, and missing classes."""

import math
from itertools import combinations

import pytest
import torch

from tsadapt.core import (
    class_prototypes,
    orthogonality_penalty,
    prototype_discrepancy,
    running_prototypes,
    score_discrepancy,
)

G = torch.Generator().manual_seed(0)
Y, GUESS = torch.tensor([0, 0, 1, 3, 3, 3]), torch.tensor([1, 3, 3, 2, 1])
"""Class 0 is missing in the target, class 2 in the source."""


def normal(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=G)


def rows(k=4, dtype=torch.float64):
    return normal(len(Y), k, dtype=dtype), Y, normal(len(GUESS), k, dtype=dtype), GUESS


def naive_means(source, labels, target, guesses):
    """μ_s, μ_t and μ_st by class, as lists of floats."""
    found = {}
    for c in sorted({*labels.tolist()} & {*guesses.tolist()}):
        s = [f.tolist() for f, y in zip(source, labels, strict=True) if y == c]
        t = [f.tolist() for f, y in zip(target, guesses, strict=True) if y == c]
        found[c] = [[sum(values) / len(part) for values in zip(*part, strict=True)] for part in (s, t, s + t)]
    return found


def squared(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def naive_scores(source, labels, target, guesses):
    means = naive_means(source, labels, target, guesses)
    total = 0.0
    for f in [*source.tolist(), *target.tolist()]:
        p = []
        for kind in range(3):
            e = [math.exp(-squared(f, means[c][kind])) for c in means]
            p.append([value / sum(e) for value in e])
        for a, b in combinations(p, 2):
            forth = sum(x * math.log(x / y) for x, y in zip(a, b, strict=True))
            back = sum(y * math.log(y / x) for x, y in zip(a, b, strict=True))
            total += (forth + back) / 2 / 3
    return total / (len(source) + len(target))


def test_means_of_classes():
    f = torch.tensor([[1.0, 0.0], [3.0, 2.0], [7.0, 7.0]])
    mean, count = class_prototypes(f, torch.tensor([2, 2, 0]), 4)
    assert mean.tolist() == [[7.0, 7.0], [0.0, 0.0], [2.0, 1.0], [0.0, 0.0]]
    assert count.tolist() == [1, 0, 2, 0]


def test_kept_prototypes():
    """Classes: met and in the batch, not met and in the batch, met and missing, not met and missing."""
    kept, batch = torch.tensor([[4.0], [0.0], [4.0], [0.0]]), torch.tensor([[8.0], [8.0], [0.0], [0.0]])
    met, count = torch.tensor([True, False, True, False]), torch.tensor([3, 1, 0, 0])
    batch.requires_grad_()
    new = running_prototypes(kept, met, batch, count, 0.25)
    assert new.flatten().tolist() == [5.0, 8.0, 4.0, 0.0]
    new.sum().backward()
    assert batch.grad.flatten().tolist() == [0.25, 1.0, 0.0, 0.0]
    assert running_prototypes(kept, met, batch, count, 1.0).flatten().tolist() == [8.0, 8.0, 4.0, 0.0]


def test_class_discrepancy_by_hand():
    """μ_s = 1, μ_t = 4, μ_st = (0 + 2 + 4)/3 = 2: 9 + 1 + 4 for class 0; 1 + ¼ + ¼ for class 1; class 2 has none."""
    s, t = torch.tensor([[0.0], [2.0], [5.0], [9.0]]), torch.tensor([[4.0], [6.0]])
    y, guess = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1])
    assert prototype_discrepancy(s, y, t, guess).item() == pytest.approx((14 + 1.5) / 2)


def test_score_discrepancy_by_hand():
    """One row a class and domain at ±1 and ±2: the logit of class 0 against 1 is 4af with a = 1, 2, 3/2."""
    s, t = torch.tensor([[1.0], [-1.0]]), torch.tensor([[2.0], [-2.0]])
    y = torch.tensor([0, 1])

    def of(f):
        p = [1 / (1 + math.exp(-4 * a * f)) for a in (1, 2, 1.5)]
        z = [4 * a * f for a in (1, 2, 1.5)]
        return sum((p[i] - p[j]) * (z[i] - z[j]) / 2 for i, j in combinations(range(3), 2)) / 3

    expected = (of(1) + of(-1) + of(2) + of(-2)) / 4
    assert score_discrepancy(s, y, t, y).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("k", [1, 4])
def test_naively(k):
    given = rows(k)
    means = naive_means(*given)
    assert set(means) == {1, 3}
    each = [squared(a, b) for three in means.values() for a, b in combinations(three, 2)]
    assert prototype_discrepancy(*given).item() == pytest.approx(sum(each) / 2, rel=1e-10)
    assert score_discrepancy(*given).item() == pytest.approx(naive_scores(*given), rel=1e-10)


@pytest.mark.parametrize("loss", [prototype_discrepancy, score_discrepancy])
def test_gradients(loss):
    s, y, t, guess = rows()
    assert torch.autograd.gradcheck(lambda s, t: loss(s, y, t, guess), (s.requires_grad_(), t.requires_grad_()))


@pytest.mark.parametrize("loss", [prototype_discrepancy, score_discrepancy])
def test_symmetries(loss):
    """Neither the order of rows nor a common shift or turn matters, nor the names of the classes."""
    s, y, t, guess = rows()
    expected = loss(s, y, t, guess)
    order = torch.randperm(len(y), generator=G)
    turn, _ = torch.linalg.qr(normal(4, 4))
    shift, names = normal(4), torch.tensor([5, 2, 0, 9])
    for other in ((s[order], y[order], t, guess), (s @ turn + shift, y, t @ turn + shift, guess),
                  (s, names[y], t, names[guess]), (t, guess, s, y)):  # fmt: skip
        torch.testing.assert_close(loss(*other), expected)


@pytest.mark.parametrize("loss", [prototype_discrepancy, score_discrepancy])
def test_equal_batches_have_none(loss):
    f = normal(6, 3)
    assert loss(f, Y, f, Y).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("loss", [prototype_discrepancy, score_discrepancy])
@pytest.mark.parametrize("guess", [[0, 0, 0], [1, 1, 1], [0, 1, 1]])
def test_classes_missing_on_one_side_are_left_out(loss, guess):
    """A mean over no rows is NaN: here it counts for nothing, and passes a gradient of zero at most."""
    s, t = normal(3, 2).requires_grad_(), normal(3, 2).requires_grad_()
    y = torch.tensor([1, 1, 2])
    guess = torch.tensor(guess)
    value = loss(s, y, t, guess)
    value.backward()
    for f in (value, s.grad, t.grad):
        assert f.isfinite().all()
    assert (s.grad[2] == 0).all() or loss is score_discrepancy
    if not (guess == 1).any():
        assert value == 0
        assert (s.grad == 0).all()
        assert (t.grad == 0).all()
    elif loss is prototype_discrepancy:
        mu_s, mu_t = s[:2].mean(0), t[guess == 1].mean(0)
        mu_st = torch.cat([s[:2], t[guess == 1]]).mean(0)
        torch.testing.assert_close(value, sum((a - b).square().sum() for a, b in combinations((mu_s, mu_t, mu_st), 2)))
    else:
        assert value == 0  # with one class there is nothing to tell apart


@pytest.mark.parametrize("loss", [prototype_discrepancy, score_discrepancy])
@pytest.mark.parametrize("size", [1e-6, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_features_stay_finite(loss, size, dtype):
    s, y, t, guess = rows(dtype=dtype)
    s, t = (size * s).requires_grad_(), (size * t).requires_grad_()
    value = loss(s, y, t, guess)
    assert value.dtype == torch.float32
    value.backward()
    assert all(f.isfinite().all() for f in (value, s.grad, t.grad))


def test_sure_scores_do_not_vanish():
    """KL of scores that agree on a class and differ on all else: its logarithms come from the logits."""
    s, t = torch.tensor([[40.0], [-40.0]]), torch.tensor([[44.0], [-36.0]])
    y = torch.tensor([0, 1])
    value = score_discrepancy(s.double(), y, t.double(), y).item()
    assert value == pytest.approx(score_discrepancy(s, y, t, y).item(), rel=1e-4)


def test_orthogonality():
    """Zero for rows of length one at right angles, in whatever direction."""
    mu = normal(5, 3)
    expected = sum(
        (sum(a * b for a, b in zip(mu[i].tolist(), mu[j].tolist(), strict=True)) - (i == j)) ** 2
        for i in range(5)
        for j in range(5)
    )
    assert orthogonality_penalty(mu).item() == pytest.approx(expected / 5, rel=1e-10)
    turn, _ = torch.linalg.qr(normal(4, 4))
    assert orthogonality_penalty(turn[:3]).item() == pytest.approx(0, abs=1e-12)
    assert orthogonality_penalty(torch.tensor([[1.0, 0.0], [0.6, 0.8]])).item() == pytest.approx(0.36)
    assert orthogonality_penalty(torch.zeros(4, 2)).item() == 1  # no prototypes yet
    assert orthogonality_penalty(torch.zeros(0, 2)).item() == 0
    assert torch.autograd.gradcheck(orthogonality_penalty, mu.requires_grad_())
    small = normal(3, 4).bfloat16().requires_grad_()
    assert orthogonality_penalty(small).dtype == torch.float32
