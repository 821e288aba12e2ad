"""A memory that is dealt to several processes gives what one gives: statistics, neighbours, labels, gradients."""

import pytest
import torch

from tsadapt.core import (
    FeatureMemory,
    PredictionMemory,
    centroid_labels,
    nearest_rows,
    product_labels,
    sampled_cross_entropy,
    transferable_cross_entropy,
)
from tsadapt.core.merged import ShardedMemory
from tsadapt.core.processes import Processes

SIZE, DIM, CLASSES, WRITES, BATCH = 23, 5, 4, 9, 7


def statistics_of(second_moments, own_labels):
    """All that can be asked of a memory after some writes, one of them of a row twice and of one that is not finite."""
    torch.manual_seed(0)
    processes = Processes.here()
    options = {"dtype": torch.float64, "second_moments": second_moments}
    made = (
        FeatureMemory(SIZE, DIM, CLASSES, **options)
        if processes is None
        else ShardedMemory(processes, SIZE, DIM, CLASSES, **options)
    )
    predictions = PredictionMemory(SIZE, CLASSES, processes)
    for at in range(WRITES):
        index = torch.randint(SIZE, (BATCH,))
        f, labels = torch.randn(BATCH, DIM, dtype=torch.float64), torch.randint(CLASSES - 1, (BATCH,))
        f[2] += 5 * (at == 3)
        f[4] = torch.nan if at == 5 else f[4]
        made.write(index, f, labels)
        predictions.write(index, torch.randn(BATCH, CLASSES).softmax(1))
    of = made
    if own_labels:
        labels = torch.where(made.labels < CLASSES, (made.labels + torch.arange(SIZE) % 2) % CLASSES, CLASSES)
        of = made.under(labels, torch.rand(SIZE, dtype=torch.float64) * (torch.arange(SIZE) % 5 > 0))
    w = torch.randn(CLASSES, DIM, dtype=torch.float64, requires_grad=True)
    f = torch.randn(BATCH, DIM, dtype=torch.float64)
    y = torch.randint(CLASSES, (BATCH,))
    found = {"labels": made.labels, "mean prediction": predictions.mean(), "of some": predictions.rows(torch.arange(9))}
    for classes in (None, torch.tensor([2, 0])):
        found[f"means {classes}"] = torch.cat([part.reshape(-1).double() for part in of.class_means(classes)])
        table = of.variances_along(w, classes)
        (table * torch.arange(table.numel()).view_as(table)).sum().backward()
        found[f"variances {classes}"], found[f"gradient {classes}"] = table.detach(), mean(processes, w)
    for name, one in (("moments", of.moments()), ("pooled", of.pooled())):
        found |= {f"{name} count": one.count, f"{name} mean": one.mean, f"{name} covariance": one.covariance}
    found["traces"], found["factor"] = of.total_variances(), of.factor(1)
    for policy in ("skip", "global"):
        loss = transferable_cross_entropy(f @ w.T, y, w, made, of, 0.7, policy=policy, min_count=3)
        drawn = sampled_cross_entropy(f, y, w, None, made, of, 0.7, 3, torch.Generator().manual_seed(1))
        (loss + drawn).backward()
        found[f"loss {policy}"], found[f"loss's gradient {policy}"] = (loss + drawn).detach(), mean(processes, w)
    eligible = (made.labels < CLASSES) & predictions.written
    place, there = nearest_rows(f, made.features, 20, torch.arange(BATCH), eligible, processes)
    found["neighbours"], found["found"] = place * there, there
    seen = predictions.written[made.block]
    for name, estimate in (("centroids", centroid_labels), ("product", product_labels)):
        labels = estimate(made.features[seen], predictions.predictions[seen], processes=processes)
        found[name] = labels if processes is None else processes.collect(labels, processes.objects(len(labels)))
    return found


def mean(processes, w):
    if processes is not None:
        processes.mean_gradients([w])
    grad, w.grad = w.grad, None
    return grad


@pytest.mark.parametrize("own_labels", [False, True], ids=["as written", "under other labels"])
@pytest.mark.parametrize("second_moments", [False, True], ids=["projection", "running sums"])
@pytest.mark.parametrize("number", [2, 3])
def test_statistics(pool, number, second_moments, own_labels):
    expected = statistics_of(second_moments, own_labels)
    for some in pool(number).run(statistics_of, second_moments, own_labels):
        assert some.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(some[name], value, rtol=1e-9, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
