import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from tsadapt.core import centroid_labels, nearest_centroid, product_labels, pseudo_label_loss


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / (math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b)))


def naive_labels(features, predictions):
    """Row by row, with means in place of sums."""
    g = [[*f, 1.0] for f in features.tolist()]
    g = [[v / math.sqrt(sum(x * x for x in row)) for v in row] for row in g]
    p = predictions.tolist()
    classes = range(predictions.shape[1])
    allowed = {row.index(max(row)) for row in p}
    for _ in range(2):
        centres = {}
        for c in classes:
            mass = sum(row[c] for row in p)
            if c in allowed and mass > 0:
                centres[c] = [sum(w[c] * row[k] for w, row in zip(p, g, strict=True)) / mass for k in range(len(g[0]))]
        labels = [max(centres, key=lambda c, row=row, centres=centres: cosine(row, centres[c])) for row in g]
        p = [[float(c == label) for c in classes] for label in labels]
    return labels


@given(seed=st.integers(0, 1000), n=st.integers(1, 15), c=st.integers(1, 5), scale=st.sampled_from([0.3, 5.0]))
@settings(max_examples=40, deadline=None)
def test_labels_by_centroids_row_by_row(seed, n, c, scale):
    features, predictions = normal(n, 3, seed=seed), (scale * normal(n, c, seed=seed + 1)).softmax(1)
    assert centroid_labels(features, predictions).tolist() == naive_labels(features, predictions)


def naive_products(features, predictions, tau):
    """Prediction times the softmax of cosines to the centroids of the labels that `naive_labels` found, row by row."""
    labels = naive_labels(features, predictions)
    g = [[*f, 1.0] for f in features.tolist()]
    g = [[v / math.sqrt(sum(x * x for x in row)) for v in row] for row in g]
    # The centroids that gave these labels are those of the first estimate.
    first = _first_estimate(features, predictions)
    centres = {
        c: [sum(row[k] for row, label in zip(g, first, strict=True) if label == c) for k in range(len(g[0]))]
        for c in {*first}
    }
    assert labels == [max(centres, key=lambda c, row=row: cosine(row, centres[c])) for row in g]
    found = []
    for row, p in zip(g, predictions.tolist(), strict=True):
        near = {c: math.exp(cosine(row, centre) / tau) for c, centre in centres.items()}
        total = sum(near.values())
        found.append(max(centres, key=lambda c, p=p, near=near, total=total: p[c] * near[c] / total))
    return found


def _first_estimate(features, predictions):
    g = [[*f, 1.0] for f in features.tolist()]
    g = [[v / math.sqrt(sum(x * x for x in row)) for v in row] for row in g]
    p = predictions.tolist()
    classes = {row.index(max(row)) for row in p}
    centres = {
        c: [sum(w[c] * row[k] for w, row in zip(p, g, strict=True)) for k in range(len(g[0]))] for c in sorted(classes)
    }
    return [max(centres, key=lambda c, row=row: cosine(row, centres[c])) for row in g]


@given(seed=st.integers(0, 1000), n=st.integers(1, 15), c=st.integers(1, 5), tau=st.sampled_from([0.05, 0.1, 1.0]))
@settings(max_examples=40, deadline=None)
def test_labels_by_products_row_by_row(seed, n, c, tau):
    features, predictions = normal(n, 3, seed=seed), (3 * normal(n, c, seed=seed + 1)).softmax(1)
    assert product_labels(features, predictions, tau).tolist() == naive_products(features, predictions, tau)


def test_products_lie_between_the_network_and_the_centroids():
    features, predictions = normal(60, 3), (2 * normal(60, 4, seed=1)).softmax(1)
    by_centroid, by_network = centroid_labels(features, predictions), predictions.argmax(1)
    assert not torch.equal(by_centroid, by_network)
    assert torch.equal(product_labels(features, predictions, 1e-4), by_centroid)
    assert torch.equal(product_labels(features, predictions, 1e4), by_network)
    certain = torch.eye(4)[by_network]  # a probability of zero is not minus infinity twice
    assert torch.equal(product_labels(features, certain), by_network)
    with pytest.raises(ValueError, match="temperature is 0"):
        product_labels(features, predictions, 0)


def test_clusters_correct_a_few_wrong_predictions():
    truth = torch.arange(30) % 3
    features = 4 * torch.eye(3)[truth] + 0.1 * normal(30, 3).float()
    predicted = truth.clone()
    predicted[:4] = (truth[:4] + 1) % 3
    assert torch.equal(centroid_labels(features, 0.1 + F.one_hot(predicted, 3).float()), truth)


def test_a_class_that_nobody_predicts_is_no_label_and_none_is_nan():
    """Class 2 has some probability everywhere and would win by its centre; class 3 has none at all."""
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    p = torch.tensor([[0.6, 0.0, 0.4, 0.0], [0.0, 0.6, 0.4, 0.0], [0.45, 0.15, 0.4, 0.0]])
    assert set(centroid_labels(features, p).tolist()) == {0, 1}
    assert centroid_labels(features, torch.eye(4)[[1, 1, 1]]).tolist() == [1, 1, 1]
    assert centroid_labels(features[:0], p[:0]).tolist() == []
    assert centroid_labels(1e4 * features, torch.ones(3, 1)).tolist() == [0, 0, 0]  # one class


def test_the_one_appended_tells_lengths_apart():
    """Two classes in one direction, which a cosine of the features alone could not tell apart."""
    features = torch.tensor([[0.1], [0.2], [5.0], [6.0]])
    p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]])
    assert centroid_labels(features, p).tolist() == [0, 0, 1, 1]


def test_absent_classes_have_no_centroid():
    """A centre of zeros over its length is 0/0, and every comparison with NaN is lost or won by chance."""
    centroids = torch.cat([torch.zeros(1, 3), torch.eye(3)])
    present = torch.tensor([False, True, True, True])
    features = normal(20, 3).float()
    assert torch.equal(nearest_centroid(features, centroids, present), 1 + features.argmax(1))
    assert nearest_centroid(-torch.ones(1, 3), centroids, present).item() != 0  # though zero is nearer than they are
    nan = centroids.masked_fill(~present[:, None], torch.nan)
    assert torch.equal(nearest_centroid(features, nan, present), 1 + features.argmax(1))
    assert nearest_centroid(features, centroids, ~present & present).isfinite().all()  # no class at all


def test_the_loss_by_loops_and_by_torch():
    logits, labels = normal(6, 4), torch.tensor([0, 3, 1, 2, 2, 9])
    weight = torch.tensor([0.3, 1.0, 0.0, 2.0, 0.5, 0.0])
    log_p = logits.log_softmax(1)
    naive = sum(
        w * -float(log_p[j, y]) for j, (y, w) in enumerate(zip(labels.tolist(), weight.tolist(), strict=True)) if w
    )
    assert pseudo_label_loss(logits, labels, weight).item() == pytest.approx(naive / weight.sum().item())
    torch.testing.assert_close(pseudo_label_loss(logits[:5], labels[:5]), F.cross_entropy(logits[:5], labels[:5]))
    torch.testing.assert_close(
        pseudo_label_loss(logits, labels, 1e-30 * weight), pseudo_label_loss(logits, labels, weight)
    )
    assert torch.autograd.gradcheck(lambda z: pseudo_label_loss(z, labels, weight), logits.requires_grad_())


def test_no_weight_at_all_is_no_loss_and_no_gradient():
    logits = normal(3, 2).requires_grad_()
    loss = pseudo_label_loss(logits, torch.zeros(3, dtype=torch.int64), torch.zeros(3))
    assert loss == 0
    assert (torch.autograd.grad(loss, logits)[0] == 0).all()


@pytest.mark.parametrize("scale", [1e4, -1e4])
@pytest.mark.parametrize("shape", [(6, 4), (3, 8), (1, 3), (4, 1)])
def test_extreme_logits(scale, shape):
    logits = (scale * normal(*shape)).float().requires_grad_()
    loss = pseudo_label_loss(logits, torch.zeros(shape[0], dtype=torch.int64), torch.linspace(0, 1, shape[0]))
    assert loss.isfinite()
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()


def test_half_precision_computes_in_float32():
    logits, labels = torch.randn(6, 5).bfloat16(), torch.arange(6) % 5
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = pseudo_label_loss(logits, labels)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(pseudo_label_loss(logits.float(), labels).item(), abs=1e-6)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="centroids has shape"):
        nearest_centroid(torch.zeros(2, 3), torch.zeros(4, 2), torch.ones(4, dtype=torch.bool))
    with pytest.raises(ValueError, match="present is"):
        nearest_centroid(torch.zeros(2, 3), torch.zeros(4, 3), torch.ones(4))
    with pytest.raises(ValueError, match="predictions has shape"):
        centroid_labels(torch.zeros(2, 3), torch.zeros(3, 4))
    with pytest.raises(ValueError, match="weight has shape"):
        pseudo_label_loss(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), torch.ones(3))
