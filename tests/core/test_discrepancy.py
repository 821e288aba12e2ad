import math

import pytest
import torch

from tsadapt.core import covariance_distance, fused_features, joint_mmd, multi_kernel_mmd

ESTIMATORS = ("unbiased", "linear")


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def batches(b_s=5, b_t=5, k=3, dtype=torch.float64):
    return normal(b_s, k, seed=1, dtype=dtype), 0.5 + 2 * normal(b_t, k, seed=2, dtype=dtype)


def squared(x, y):
    return sum((a - b) ** 2 for a, b in zip(x.tolist(), y.tolist(), strict=True))


def naive_spread(s, t):
    rows = [*s, *t]
    return sum(squared(x, y) for x in rows for y in rows) / len(rows) ** 2


def naive_kernel(x, y, spread):
    return sum(math.exp(-squared(x, y) / (2 * 2.0**k * spread)) for k in range(-3, 2))


def naive_mmd(s, t, kernel, estimator):
    """`kernel` of two positions in the joint batch."""
    n, m = len(s), len(t)
    if estimator == "linear":
        total = 0.0
        for i in range(n):
            j = (i + 1) % n
            total += kernel(i, j) + kernel(n + i, n + j) - kernel(i, n + j) - kernel(j, n + i)
        return total / n
    ss = sum(kernel(i, j) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    tt = sum(kernel(n + i, n + j) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    return ss + tt - 2 * sum(kernel(i, n + j) for i in range(n) for j in range(m)) / (n * m)


@pytest.mark.parametrize(
    ("b_s", "b_t", "estimator"), [(5, 5, "unbiased"), (5, 5, "linear"), (2, 2, "linear"), (7, 3, "unbiased")]
)
def test_mmd_equals_the_formula_written_out(b_s, b_t, estimator):
    s, t = batches(b_s, b_t)
    rows, spread = [*s, *t], naive_spread(s, t)
    expected = naive_mmd(s, t, lambda i, j: naive_kernel(rows[i], rows[j], spread), estimator)
    assert multi_kernel_mmd(s, t, estimator).item() == pytest.approx(expected, rel=1e-10)
    assert multi_kernel_mmd(s, t, estimator, spread=spread).item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("b_s", "b_t", "estimator"), [(5, 5, "unbiased"), (5, 5, "linear"), (7, 3, "unbiased")])
def test_joint_mmd_equals_the_formula_written_out(b_s, b_t, estimator):
    s, t = batches(b_s, b_t)
    p, q = normal(b_s, 4, seed=3).softmax(1), normal(b_t, 4, seed=4).softmax(1)
    rows, predicted, spread = [*s, *t], [*p, *q], naive_spread(s, t)

    def kernel(i, j):
        k_p = math.exp(-squared(predicted[i], predicted[j]) / (2 * 0.92**2))
        return naive_kernel(rows[i], rows[j], spread) * k_p

    found = joint_mmd(s, t, p, q, estimator=estimator)
    assert found.item() == pytest.approx(naive_mmd(s, t, kernel, estimator), rel=1e-10)


def test_sigma_of_the_predictions_is_a_standard_deviation():
    """Two certain, different classes are √2 apart: k_p = exp(−2/(2·0.92²)) = 0.306826."""
    s, t = torch.zeros(2, 1, dtype=torch.float64), torch.zeros(2, 1, dtype=torch.float64)  # k_f = 5
    p, q = torch.eye(2, dtype=torch.float64)[[0, 0]], torch.eye(2, dtype=torch.float64)[[1, 1]]
    assert joint_mmd(s, t, p, q).item() == pytest.approx(2 * 5 * (1 - 0.306826), abs=1e-5)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_mmd_by_hand(estimator):
    """s = {0, 0} and t = {1, 1}: k = 5 within a domain, and across it Σ exp(−1/2^k), since the mean distance is ½."""
    s, t = torch.zeros(2, 1), torch.ones(2, 1)
    across = sum(math.exp(-1 / (2 * 2.0**k * 0.5)) for k in range(-3, 2))
    assert multi_kernel_mmd(s, t, estimator).item() == pytest.approx(10 - 2 * across, rel=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_constant_is_added(estimator):
    """The same two rows in both batches: k_01 − 5, which is below zero; public code adds 2/(B − 1)."""
    s = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    k_01 = naive_kernel(s[0], s[1], naive_spread(s, s))
    expected = {"unbiased": k_01 - 5, "linear": 0.0}[estimator]
    assert multi_kernel_mmd(s, s, estimator).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_mmd_is_zero_on_average_for_equal_distributions_and_positive_for_others(estimator):
    found = {0.0: [], 1.5: []}
    g = torch.Generator().manual_seed(0)
    for _ in range(600):
        s, t = torch.randn(2, 6, 3, generator=g)
        for shift, values in found.items():
            # One spread for all: the batch's own depends on the rows, so that estimate is unbiased for its kernel only.
            values.append(multi_kernel_mmd(s, t + shift, estimator, spread=6.0).item())
    for shift, values in found.items():
        v = torch.tensor(values)
        error = v.std() / len(v) ** 0.5
        assert abs(v.mean()) < 4 * error if shift == 0 else v.mean() > 10 * error
        if shift == 0:
            assert (v < 0).any()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_symmetry_order_shift_scale_and_rotation(estimator):
    s, t = batches()
    value = multi_kernel_mmd(s, t, estimator)
    rotation = torch.linalg.qr(normal(3, 3, seed=5))[0]
    for one, other in ((t, s), (s + 100, t + 100), (1e6 * s, 1e6 * t), (s @ rotation, t @ rotation)):
        torch.testing.assert_close(multi_kernel_mmd(one, other, estimator), value)
    if estimator == "unbiased":
        torch.testing.assert_close(multi_kernel_mmd(s[[3, 1, 0, 4, 2]], t[[1, 0, 2, 4, 3]]), value)
    p, q = normal(5, 4, seed=3).softmax(1), normal(5, 4, seed=4).softmax(1)
    joint = joint_mmd(s, t, p, q, estimator=estimator)
    torch.testing.assert_close(joint_mmd(t, s, q, p, estimator=estimator), joint)
    torch.testing.assert_close(joint_mmd(s + 9, t + 9, p, q, estimator=estimator), joint)
    same = torch.full((5, 4), 0.25, dtype=torch.float64)
    torch.testing.assert_close(joint_mmd(s, t, same, same, estimator=estimator), value)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_gradients_of_mmd(estimator):
    s, t = (x.requires_grad_() for x in batches())
    p, q = (normal(5, 4, seed=i).softmax(1).requires_grad_() for i in (3, 4))
    assert torch.autograd.gradcheck(lambda a, b: multi_kernel_mmd(a, b, estimator, spread=4.0), (s, t))
    joint = lambda a, b, c, d: joint_mmd(a, b, c, d, estimator=estimator, spread=4.0)  # noqa: E731
    assert torch.autograd.gradcheck(joint, (s, t, p, q))
    # The spread of the batch is a constant: the gradient is that with the same number given.
    grads = [
        torch.autograd.grad(multi_kernel_mmd(s, t, estimator, spread), (s, t))
        for spread in (None, naive_spread(s.detach(), t.detach()))
    ]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e4, 1e30, 3e38])
def test_mmd_of_extreme_features_is_finite(estimator, scale):
    s, t = (scale * x.clamp(-1, 1) for x in batches(dtype=torch.float32))
    for one, other in ((s, t), (s, s), (s[:1].expand(5, 3), s[:1].expand(5, 3)), (s[:1].expand(5, 3), t)):
        a, b = one.clone().requires_grad_(), other.clone().requires_grad_()
        value = multi_kernel_mmd(a, b, estimator)
        assert value.isfinite()
        assert all(grad.isfinite().all() for grad in torch.autograd.grad(value, (a, b)))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_rows_that_are_all_alike_give_no_gradient(estimator):
    f = (1000.1 + torch.zeros(6, 8)).requires_grad_()
    value = multi_kernel_mmd(f[:3], f[3:], estimator)
    assert value.item() == pytest.approx(0, abs=1e-5)
    assert (torch.autograd.grad(value, f)[0] == 0).all()


def test_half_precision_computes_in_float32():
    s, t = (x.bfloat16() for x in batches())
    p, q = (normal(5, 4, seed=i).softmax(1).bfloat16() for i in (3, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = [multi_kernel_mmd(s, t), joint_mmd(s, t, p, q), covariance_distance(s, t)]
    s, t, p, q = (x.float() for x in (s, t, p, q))
    for value, expected in zip(
        found, [multi_kernel_mmd(s, t), joint_mmd(s, t, p, q), covariance_distance(s, t)], strict=True
    ):
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, expected)


def test_batches_that_do_not_fit_are_named():
    s, t = batches(4, 6)
    with pytest.raises(ValueError, match=r"features_s has 4 rows and features_t 6: .*'unbiased'"):
        multi_kernel_mmd(s, t, "linear")
    with pytest.raises(ValueError, match="features_t has 1 row"):
        multi_kernel_mmd(s, t[:1])
    with pytest.raises(ValueError, match=r"features_t has shape \(6, 2\)"):
        covariance_distance(s, t[:, :2])
    with pytest.raises(ValueError, match="features_s has 1 row"):
        covariance_distance(s[:1], t)
    with pytest.raises(ValueError, match="estimator is 'quadratic'"):
        multi_kernel_mmd(s, t, "quadratic")
    with pytest.raises(ValueError, match=r"probabilities_s has shape \(3, 2\)"):
        joint_mmd(s, t, s[:3, :2].softmax(1), t[:, :2].softmax(1))


def test_covariance_distance_written_out_and_by_hand():
    s, t = batches(6, 4)

    def covariance(f, a, b):
        n, means = len(f), f.mean(0)
        return sum(float((row[a] - means[a]) * (row[b] - means[b])) for row in f) / (n - 1)

    total = sum((covariance(s, a, b) - covariance(t, a, b)) ** 2 for a in range(3) for b in range(3))
    assert covariance_distance(s, t).item() == pytest.approx(total / (4 * 3**2), rel=1e-10)
    torch.testing.assert_close(covariance_distance(s, t), (torch.cov(s.T) - torch.cov(t.T)).square().sum() / 36)
    # Variances 2 and 8, one feature: 36/4. Divided by n, it would be 9/4.
    assert covariance_distance(torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [4.0]])).item() == 9.0


def test_properties_of_the_covariance_distance():
    s, t = batches(6, 4)
    value = covariance_distance(s, t)
    rotation = torch.linalg.qr(normal(3, 3, seed=5))[0]
    torch.testing.assert_close(covariance_distance(t, s), value)
    torch.testing.assert_close(covariance_distance(s + 50, t - 7), value)
    torch.testing.assert_close(covariance_distance(s @ rotation, t @ rotation), value)
    torch.testing.assert_close(covariance_distance(3 * s, 3 * t), 81 * value)
    assert covariance_distance(s, s.flip(0)).item() == pytest.approx(0, abs=1e-20)
    assert torch.autograd.gradcheck(covariance_distance, (s.requires_grad_(), t.requires_grad_()))
    huge = [(1e8 * x.detach().float()).requires_grad_() for x in (s, t)]
    far = covariance_distance(*huge)
    assert far.isfinite()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(far, huge))


@pytest.mark.parametrize("k", [1, 2, 5, 6])
def test_fused_features_written_out(k):
    f, z = normal(4, k, seed=1), normal(4, 3, seed=2)
    expected = []
    for row, logits in zip(f.tolist(), z.tolist(), strict=True):
        pairs = [row[i : i + 2] for i in range(0, k, 2)]
        expected.append([v * sum(pair) / len(pair) for v in logits for pair in pairs])
    torch.testing.assert_close(fused_features(f, z), torch.tensor(expected, dtype=torch.float64))


def test_properties_of_fused_features():
    f, z = normal(4, 5, seed=1), normal(4, 3, seed=2)
    torch.testing.assert_close(fused_features(2 * f, 3 * z), 6 * fused_features(f, z))
    torch.testing.assert_close(fused_features(f.flip(0), z.flip(0)), fused_features(f, z).flip(0))
    torch.testing.assert_close(fused_features(f[:, [1, 0, 3, 2, 4]], z), fused_features(f, z))  # within a pair
    assert torch.autograd.gradcheck(fused_features, (f.requires_grad_(), z.requires_grad_()))
    huge = [(1e15 * x.detach().float()).requires_grad_() for x in (f, z)]
    value = fused_features(*huge)
    assert value.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(value.sum(), huge))
    assert fused_features(f.detach().bfloat16(), z.detach().bfloat16()).dtype == torch.float32
    with pytest.raises(ValueError, match=r"logits has shape \(3, 3\)"):
        fused_features(f, z[:3])
