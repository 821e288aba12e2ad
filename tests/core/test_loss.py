import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tsadapt
from tsadapt import TSALoss
from tsadapt.core import mutual_information_loss, transferable_cross_entropy

close = torch.testing.assert_close


def batch(seed, n=8, dim=6, classes=3, rows=20):
    g = torch.Generator().manual_seed(seed)
    f_s, f_t = (torch.randn(n, dim, generator=g) for _ in range(2))
    i_s, i_t = (torch.randperm(rows, generator=g)[:n] for _ in range(2))
    return f_s, torch.randint(classes, (n,), generator=g), i_s, f_t, i_t


@pytest.fixture
def head():
    torch.manual_seed(0)
    return nn.Linear(6, 3)


def test_terms_are_those_of_the_paper_after_writing(head):
    tsa = TSALoss(3, 6, 20, 20, lambda0=0.8, beta=0.3)
    f_s, y_s, i_s, f_t, i_t = batch(0)
    tsa(head, *batch(1), progress=0.1)
    terms = tsa(head, f_s, y_s, i_s, f_t, i_t, progress=0.5)
    # The batch's own features and pseudo-labels are in the memory by now.
    close(tsa.source.features[i_s], f_s)
    close(tsa.target.labels[i_t], head(f_t).argmax(1))
    expected = transferable_cross_entropy(head(f_s), y_s, head.weight, tsa.source, tsa.target, 0.4)
    close(terms["tsa"], expected)
    close(terms["mi"], 0.3 * mutual_information_loss(head(f_t)))


def test_gradients_reach_head_and_features(head):
    f_s, y_s, i_s, f_t, i_t = batch(2)
    f_s.requires_grad_()
    f_t.requires_grad_()
    terms = TSALoss(3, 6, 20, 20)(head, f_s, y_s, i_s, f_t, i_t, 1.0)
    sum(terms.values()).backward()
    assert all(t.grad.abs().sum() > 0 for t in (f_s, f_t, head.weight, head.bias))


def test_zero_lambda_and_beta_is_cross_entropy(head):
    f_s, y_s, i_s, f_t, i_t = batch(3)
    terms = TSALoss(3, 6, 20, 20, lambda0=0, beta=0)(head, f_s, y_s, i_s, f_t, i_t, 1.0)
    assert torch.equal(sum(terms.values()), F.cross_entropy(head(f_s), y_s))


def test_smoothed_labels(head):
    plain, smoothed = (TSALoss(3, 6, 20, 20, label_smoothing=e) for e in (0.0, 0.2))
    f_s, y_s, i_s, f_t, i_t = batch(3)
    losses = [loss(head, f_s, y_s, i_s, f_t, i_t, 1.0)["tsa"] for loss in (plain, smoothed)]
    assert losses[0] != losses[1]
    expected = transferable_cross_entropy(
        head(f_s), y_s, head.weight, smoothed.source, smoothed.target, 0.25, label_smoothing=0.2
    )
    assert torch.equal(losses[1], expected)


def test_evaluation_mode_writes_nothing(head):
    tsa = TSALoss(3, 6, 20, 20).eval()
    tsa(head, *batch(4), progress=0.5)
    assert tsa.source.count[:-1].sum() == tsa.target.count[:-1].sum() == 0


def test_restart_is_exact(head):
    def run(tsa, head, steps):
        for step in steps:
            terms = tsa(head, *batch(step), progress=(step + 1) / 10)
            grads = torch.autograd.grad(sum(terms.values()), [*head.parameters()])
            with torch.no_grad():
                for parameter, grad in zip(head.parameters(), grads, strict=True):
                    parameter.sub_(0.1 * grad)
        return tsa, head

    start = {k: v.clone() for k, v in head.state_dict().items()}
    whole, whole_head = run(TSALoss(3, 6, 20, 20), head, range(10))
    first, first_head = nn.Linear(6, 3), None
    first.load_state_dict(start)
    tsa, first_head = run(TSALoss(3, 6, 20, 20), first, range(4))
    again, again_head = TSALoss(3, 6, 20, 20), nn.Linear(6, 3)
    again.load_state_dict(tsa.state_dict())
    again_head.load_state_dict(first_head.state_dict())
    run(again, again_head, range(4, 10))
    for a, b in ((whole, again), (whole_head, again_head)):
        assert all(torch.equal(value, b.state_dict()[name]) for name, value in a.state_dict().items())


def test_isda_keeps_second_moments_of_the_source_only():
    isda = TSALoss(3, 4, 9999, 9999, mean_shift=False, covariance="source")
    assert (isda.source.strategy, isda.target.strategy) == ("running sums", "projection")
    assert TSALoss(3, 4, 9999, 9999).source.strategy == "projection"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda tsa, b: tsa(nn.ReLU(), *b, progress=0.5), "head is ReLU, expected a linear layer"),
        (lambda tsa, b: tsa(nn.Linear(5, 3), b[0][:, :5], *b[1:], progress=0.5), r"f_s has shape \(8, 5\)"),
        (lambda tsa, b: tsa(nn.Linear(6, 3), *b, progress=2.0), "progress is 2.0"),
        (lambda tsa, b: tsa(nn.Linear(6, 4), *b, progress=0.5), "TSALoss holds 3 classes of 6 features, expected 4"),
        (lambda tsa, b: tsa(nn.Linear(6, 3), *b[:2], b[2] + 20, *b[3:], progress=0.5), "index contains"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(TSALoss(3, 6, 20, 20), batch(5))


def test_negative_weights_are_refused():
    with pytest.raises(ValueError, match="lambda0 is -1"):
        TSALoss(3, 6, 20, 20, lambda0=-1)


def test_public_names():
    assert tsadapt.TSALoss is TSALoss
    assert set(tsadapt.__all__) <= set(dir(tsadapt))
    with pytest.raises(AttributeError, match="no attribute 'TSALos'"):
        tsadapt.TSALos  # noqa: B018
