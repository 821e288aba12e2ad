"""The same inputs through pytorch-adapt 0.0.83, which somebody else wrote: its numbers, and where it differs by design.

It is no dependency of the tests, because it pins old versions of others.
"""

import pytest
import torch

from tsadapt.core import (
    balanced_predictions,
    class_confusion_loss,
    conditional_entropy,
    covariance_distance,
    domain_loss,
    half_logit,
    joint_entropy,
    joint_mmd,
    largest_singular_energy,
    multi_kernel_mmd,
    mutual_information_loss,
    nearest_rows,
    neighbour_labels,
    norm_growth_loss,
    nuclear_discrepancy,
    nuclear_norm_loss,
    randomized_map,
)

A = torch.arange(24, dtype=torch.float64)
F_S, F_T = torch.sin(A).reshape(6, 4), torch.cos(1.7 * A[:20]).reshape(5, 4) + 0.3
Z_S, Z_T = 3 * torch.cos(0.9 * A[:18]).reshape(6, 3), 3 * torch.sin(1.3 * A[:15]).reshape(5, 3)


def slope(loss, x):
    """The loss, and the first three values of its gradient."""
    x = x.clone().requires_grad_()
    value = loss(x)
    (grad,) = torch.autograd.grad(value, x)
    return [value.item(), *grad.flatten()[:3].tolist()]


def near(*numbers):
    return pytest.approx(list(numbers), rel=1e-9)


def test_class_confusion():
    """MCCLoss(T=2.5)."""
    found = slope(class_confusion_loss, Z_T)
    assert found == near(0.551887554141118, 0.007692916721087932, -0.0155081584121255, 0.007815241691037571)


def test_nuclear_norms():
    """BNMLoss divides by the rows; here, as in the authors' code, by the number of singular values."""
    rows, values = 5, 3
    found = [one * values / rows for one in slope(nuclear_norm_loss, Z_T)]
    assert found == near(-0.648284508311632, 0.006653728095251111, -0.03511152027718707, 0.028457792181935948)
    assert nuclear_discrepancy(Z_S, Z_T).item() == pytest.approx(0.5239390638757091 - 0.648284508311632, rel=1e-9)


def test_information_of_predictions():
    """EntropyLoss and DiversityLoss: the mean entropy, and less the entropy of the mean."""
    assert conditional_entropy(Z_T).item() == pytest.approx(0.4719543382997262, rel=1e-12)
    assert mutual_information_loss(Z_T).item() == pytest.approx(0.4719543382997262 - 1.0665389448625353, rel=1e-9)


def test_growth_of_norms():
    """AdaptiveFeatureNorm(0.7)."""
    found = slope(lambda f: norm_growth_loss(f, 0.7), F_S)
    assert found == near(0.49, 0.0, -0.157462541276543, -0.17015474827914662)


def test_covariances():
    """CORALLoss."""
    found = slope(lambda f: covariance_distance(f, F_T), F_S)
    assert found == near(0.03293992379229755, 0.003987922422953765, 0.010750469717005863, 0.006267964965131157)


def test_kernel_means():
    """MMDLoss, quadratic, which averages the five kernels; bandwidths 2·mean ‖x − y‖² and, of predictions, 2·0.92²."""
    assert multi_kernel_mmd(F_S, F_T).item() == pytest.approx(1.4148395242322132, rel=1e-9)
    joint = joint_mmd(F_S, F_T, Z_S.softmax(1), Z_T.softmax(1))
    assert joint.item() == pytest.approx(0.6429800065734803, rel=1e-9)


def test_largest_singular_value():
    """BatchSpectralLoss(1)."""
    assert largest_singular_energy(F_S).item() == pytest.approx(7.073068923406984, rel=1e-12)


def test_halves_of_one_softmax():
    """SymNetsDomainLoss of both halves, and SymNetsEntropyLoss."""
    d, nothing = half_logit(Z_T, Z_S[:5]), torch.full((1,), 1e3, dtype=torch.float64)
    assert 2 * domain_loss(d, -nothing).item() == pytest.approx(0.9721342855958875, rel=1e-12)
    assert 2 * domain_loss(nothing, d).item() == pytest.approx(1.2557325330928784, rel=1e-12)
    assert joint_entropy(Z_T, Z_S[:5]).item() == pytest.approx(0.735856724277635, rel=1e-12)


def test_neighbours():
    """NeighborhoodAggregation(k=2), whose memory holds F_S and Z_S, of F_T as rows 1, 0, 3, 2, 5."""
    place, found = nearest_rows(F_T, F_S, 2, own=torch.tensor([1, 0, 3, 2, 5]))
    labels, weight = neighbour_labels(balanced_predictions(Z_S)[place], found)
    assert labels.tolist() == [1, 2, 2, 2, 2]
    assert weight[[0, 1, 3]].tolist() == near(0.36242149429432086, 0.4800277590776607, 0.2676898356509651)


def test_randomised_map():
    """RandomizedDotProduct of features and probabilities, both random matrices given."""
    r_f, r_g = torch.sin(0.3 * A[:20]).reshape(4, 5), torch.cos(0.7 * A[:15]).reshape(3, 5)
    row = randomized_map(F_S, Z_S.softmax(1), r_f, r_g)[1]
    assert row[:3].tolist() == near(-0.4440380968669945, -0.11759815246843552, 0.29453238285393557)
