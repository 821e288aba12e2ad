import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsadapt.core import mixed_label_loss, mixed_prediction_distance, mixed_rows, mixing_share

close = torch.testing.assert_close
seeds, shares = st.integers(0, 1000), st.sampled_from([0.0, 0.1, 0.5, 0.75, 1.0])


def problem(seed=0, b=6, c=4, scale=2.0):
    """Logits of mixtures and of rows, labels and partners."""
    g = torch.Generator().manual_seed(seed)
    mixed, logits = (scale * torch.randn(b, c, dtype=torch.float64, generator=g) for _ in range(2))
    return mixed, logits, torch.randint(c, (b,), generator=g), torch.randperm(b, generator=g)


def softmax(row):
    top = max(row)
    total = sum(math.exp(v - top) for v in row)
    return [math.exp(v - top) / total for v in row]


def naive_labels(mixed, y, partner, share):
    total = 0.0
    for i, row in enumerate(mixed.tolist()):
        p = softmax(row)
        total -= share * math.log(p[y[i]]) + (1 - share) * math.log(p[y[partner[i]]])
    return total / len(mixed)


def naive_distance(mixed, logits, partner, share):
    z, total = logits.tolist(), 0.0
    for i, row in enumerate(mixed.tolist()):
        expected = [share * a + (1 - share) * b for a, b in zip(z[i], z[partner[i]], strict=True)]
        total += sum(abs(p - q) for p, q in zip(softmax(row), softmax(expected), strict=True))
    return total / mixed.numel()


@given(seed=seeds, b=st.integers(1, 7), c=st.integers(1, 5), share=shares)
@settings(max_examples=40, deadline=None)
def test_equal_the_formulas_written_out(seed, b, c, share):
    mixed, logits, y, partner = problem(seed, b, c)
    labels = mixed_label_loss(mixed, y, partner, share)
    distance = mixed_prediction_distance(mixed, logits, partner, share)
    assert labels.item() == pytest.approx(naive_labels(mixed, y.tolist(), partner.tolist(), share), rel=1e-9, abs=1e-9)
    assert distance.item() == pytest.approx(naive_distance(mixed, logits, partner.tolist(), share), rel=1e-9, abs=1e-9)
    assert 0 <= distance <= 2 / c
    # The order of the classes and what is added to all logits of a row mean nothing.
    order = torch.randperm(c, generator=torch.Generator().manual_seed(seed))
    close(mixed_label_loss(mixed[:, order] + 7, order.argsort()[y], partner, share), labels)
    close(mixed_prediction_distance(mixed[:, order] - 3, logits[:, order] + 5, partner, share), distance)
    # The same mixtures, told from their other row.
    back = partner.argsort()
    close(mixed_label_loss(mixed[back], y, back, 1 - share), labels)
    close(mixed_prediction_distance(mixed[back], logits, back, 1 - share), distance)


def test_by_hand():
    """Rows (0, 4) and (8, 0) at λ = ¾; p = (½, ½) and (¼, ¾) of the mixtures, labels 0 and 1."""
    x, partner = torch.tensor([[0.0, 4.0], [8.0, 0.0]]), torch.tensor([1, 0])
    assert mixed_rows(x, partner, 0.75).tolist() == [[2.0, 3.0], [6.0, 1.0]]
    mixed = torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log()
    expected = (math.log(2) - 0.75 * math.log(0.75) - 0.25 * math.log(0.25)) / 2
    assert mixed_label_loss(mixed, torch.tensor([0, 1]), partner, 0.75).item() == pytest.approx(expected)
    # Logits (log 3, 0) and (0, log 3) mixed at ¾: ½ log 3 apart, so √3 : 1.
    logits = torch.tensor([[math.log(3), 0.0], [0.0, math.log(3)]])
    q = math.sqrt(3) / (1 + math.sqrt(3))
    expected = (2 * (q - 0.5) + 2 * abs(0.25 - (1 - q))) / 4
    assert mixed_prediction_distance(mixed, logits, partner, 0.75).item() == pytest.approx(expected)


def test_logits_are_mixed_and_not_probabilities():
    """Of a sure row and an undecided one, at one half each: σ(5) = 0.993, where probabilities give 0.75."""
    logits, partner = torch.tensor([[10.0, 0.0], [0.0, 0.0]]), torch.tensor([1, 0])
    expected = torch.sigmoid(torch.tensor(5.0))
    half = mixed_prediction_distance(torch.zeros(2, 2), logits, partner, 0.5)
    close(half, expected - 0.5)
    assert half > 0.4  # 0.25 of mixed probabilities


def test_at_the_ends_one_row_is_left():
    mixed, logits, y, partner = problem()
    close(mixed_rows(logits, partner, 1.0), logits)
    close(mixed_rows(logits, partner, 0.0), logits[partner])
    close(mixed_label_loss(mixed, y, partner, 1.0), torch.nn.functional.cross_entropy(mixed, y))
    close(mixed_label_loss(mixed, y, partner, 0.0), torch.nn.functional.cross_entropy(mixed, y[partner]))
    assert mixed_prediction_distance(logits, logits, partner, 1.0) == 0
    itself = torch.arange(len(logits))
    close(mixed_prediction_distance(logits, logits, itself, 0.3), torch.zeros((), dtype=torch.float64))


def test_gradients():
    mixed, logits, y, partner = problem()
    both = (mixed.requires_grad_(), logits.requires_grad_())
    assert torch.autograd.gradcheck(lambda z: mixed_label_loss(z, y, partner, 0.7), mixed)
    assert torch.autograd.gradcheck(lambda a, b: mixed_prediction_distance(a, b, partner, 0.7), both)
    assert torch.autograd.gradcheck(lambda x: mixed_rows(x, partner, 0.7), logits)


def test_bytes_are_mixed_as_numbers():
    pixels = torch.tensor([[250], [251]], dtype=torch.uint8)
    mixed = mixed_rows(pixels, torch.tensor([1, 0]), 0.5)
    assert mixed.dtype == torch.float32
    assert mixed.tolist() == [[250.5], [250.5]]
    stored = mixed_rows(torch.full((2, 3, 4, 4), 6e4, dtype=torch.float16), torch.tensor([1, 0]), 0.5)
    assert (stored.shape, stored.dtype) == ((2, 3, 4, 4), torch.float32)
    assert (stored == 6e4).all()
    assert mixed_rows(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0]), 0.5).dtype == torch.float64


@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_extreme_logits_a_single_row_and_half_precision(scale):
    for b in (1, 5):
        mixed, logits, y, partner = problem(b=b, scale=scale)
        z, rows = mixed.float().requires_grad_(), logits.float().requires_grad_()
        for loss in (mixed_label_loss(z, y, partner, 0.3), mixed_prediction_distance(z, rows, partner, 0.3)):
            assert loss.isfinite()
            grads = torch.autograd.grad(loss, (z, rows), allow_unused=True)
            assert all(grad is None or grad.isfinite().all() for grad in grads)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert mixed_label_loss(mixed.bfloat16(), y, partner, 0.3).dtype == torch.float32
        assert mixed_prediction_distance(mixed.bfloat16(), logits.bfloat16(), partner, 0.3).dtype == torch.float32


def test_shares_are_those_of_the_beta_distribution_and_of_the_generator_alone():
    g = torch.Generator().manual_seed(0)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    drawn = [mixing_share(0.2, g) for _ in range(4000)]
    assert torch.equal(torch.get_rng_state(), before)
    assert all(0 <= share <= 1 for share in drawn)
    assert sum(drawn) / len(drawn) == pytest.approx(0.5, abs=0.03)
    # Var Beta(α, α) = 1/(4(2α + 1)) = 0.179; F(0.05) = 0.29 by scipy.stats.beta.
    assert sum((share - 0.5) ** 2 for share in drawn) / len(drawn) == pytest.approx(1 / 5.6, abs=0.01)
    from scipy.stats import beta

    for at in (0.05, 0.3):
        assert sum(share < at for share in drawn) / len(drawn) == pytest.approx(beta.cdf(at, 0.2, 0.2), abs=0.03)
    again = torch.Generator().manual_seed(0)
    assert [mixing_share(0.2, again) for _ in range(5)] == drawn[:5]


def test_what_does_not_fit_is_refused():
    mixed, logits, y, partner = problem()
    with pytest.raises(ValueError, match="alpha is 0"):
        mixing_share(0, torch.Generator())
    with pytest.raises(ValueError, match=r"partner has shape \(5,\), expected \(6,\)"):
        mixed_rows(logits, partner[:5], 0.5)
    with pytest.raises(ValueError, match="partner contains 6"):
        mixed_rows(logits, partner + 1, 0.5)
    with pytest.raises(ValueError, match=r"share is 1\.5"):
        mixed_label_loss(mixed, y, partner, 1.5)
    with pytest.raises(ValueError, match="labels contains 4"):
        mixed_label_loss(mixed, y * 0 + 4, partner, 0.5)
    with pytest.raises(ValueError, match=r"mixed has shape \(6, 3\)"):
        mixed_prediction_distance(mixed[:, :3], logits, partner, 0.5)
