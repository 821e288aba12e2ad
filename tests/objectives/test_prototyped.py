"""TPN and SimNet: what classifies, what is kept and left in the network, what learns from what, why TSA is refused."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.configs import changed
from tests.objectives.phases import resumed, same, trainer_of
from tests.objectives.test_alignment import gradients, one_head
from tests.objectives.test_methods import B, C, K, made
from torch import nn
from torch.nn import functional as F

import tsadapt
from tsadapt.core import domain_loss, prototype_discrepancy, score_discrepancy
from tsadapt.errors import UserError
from tsadapt.objectives.base import METHODS, SOURCE_TERMS
from tsadapt.objectives.methods.simnet import ORTHOGONALITY
from tsadapt.objectives.methods.tpn import CLASSES, SCORES
from tsadapt.objectives.source_terms.ce import CrossEntropy
from tsadapt.runs.fit import train_run

BOTH = ["tpn", "simnet"]


def class_means(values, labels):
    """By a loop; zero for a class without rows."""
    found = torch.zeros(C, values.shape[1])
    for c in range(C):
        some = [v for v, y in zip(values, labels, strict=True) if y == c]
        found[c] = sum(some) / len(some) if some else 0
    return found


def labelled(out, labels):
    """The outputs with other labels of the source."""
    labels = torch.tensor(labels)
    head = replace(out.heads[0], source=replace(out.heads[0].source, labels=labels))
    return replace(out, source=replace(out.source, labels=labels), heads=(head,))


def finished(method, out):
    """The linear layer after an iteration."""
    layer = nn.Linear(K, C)
    method.finish(SimpleNamespace(linear_layers=[layer]), out)
    return layer


def test_tpn_classifies_by_distance():
    """Softmax(−‖f − μ_c‖²), row by row; the first batch's means are the prototypes."""
    _, out = one_head()
    method = made("tpn")
    seen = method.seen(out)
    mu = class_means(out.source.features, out.labels())
    for view, plain in zip(seen.both(), out.both(), strict=True):
        for f, z in zip(plain.features, view.logits, strict=True):
            expected = torch.stack([-((f - m) ** 2).sum() for m in mu])
            torch.testing.assert_close(z.softmax(0), expected.softmax(0))
    loss = CrossEntropy(method.context)(seen)
    distances = torch.stack([((out.source.features - m) ** 2).sum(1) for m in mu], 1)
    torch.testing.assert_close(loss, F.cross_entropy(-distances, out.labels()))
    again = seen.classify(out.target.features)
    assert torch.equal(again[0], seen.target.logits)
    assert torch.equal(seen.network(out.inputs[0])[1], seen.source.logits)


def test_simnet_classifies_by_a_bilinear_form():
    _, out = one_head()
    method = made("simnet")
    seen = method.seen(out)
    mu = class_means(method.embedding(out.source.features), out.labels())
    s = method.of_feature.weight.T @ method.of_prototype.weight
    assert s.shape == (K, K)
    for view, plain in zip(seen.both(), out.both(), strict=True):
        torch.testing.assert_close(view.logits, torch.stack([f @ s @ mu.T for f in plain.features]))


@pytest.mark.parametrize("name", BOTH)
def test_prototypes_are_kept_from_batch_to_batch(name):
    """Class 2 is first missing: it stays at the origin, then begins with the first mean that there is."""
    method = made(name, prototype_rate=0.25)
    _, one = one_head()
    one = labelled(one, [0, 0, 1, 1, 1])
    first = class_means(method.embed(one.source.features), one.labels()).detach()
    assert (first[2] == 0).all()
    layer = finished(method, method.seen(one))
    torch.testing.assert_close(method.prototypes, first)
    assert method.met.tolist() == [True, True, False]
    assert (layer.weight[2] == 0).all()
    _, two = one_head()
    two = labelled(replace(two, source=replace(two.source, features=two.source.features + 1)), [0, 2, 2, 2, 2])
    batch = class_means(method.embed(two.source.features), two.labels()).detach()
    seen = method.seen(two)
    torch.testing.assert_close(method.prototypes, first)  # looking changes nothing
    layer = finished(method, seen)
    expected = torch.stack([0.75 * first[0] + 0.25 * batch[0], first[1], batch[2]])
    torch.testing.assert_close(method.prototypes, expected)
    assert method.met.all()
    z = layer(two.target.features)  # the network alone predicts what the terms saw
    torch.testing.assert_close(z.softmax(1), seen.target.logits.softmax(1), rtol=1e-4, atol=1e-5)


def test_the_terms_of_tpn_and_what_they_reach():
    head, out = one_head()
    near = (out.source.features.detach() + 0.3).requires_grad_()  # so that all classes are predicted
    out = replace(out, target=replace(out.target, features=near))
    method = made("tpn")
    seen = method.seen(out)
    losses = method.losses(seen)
    assert tuple(losses) == method.terms
    guess = seen.target.logits.argmax(1)
    given = out.source.features, out.labels(), out.target.features, guess
    torch.testing.assert_close(losses["class_discrepancy"], CLASSES * prototype_discrepancy(*given))
    torch.testing.assert_close(losses["score_discrepancy"], SCORES * score_discrepancy(*given))
    for name, loss in losses.items():
        assert all(g is not None and g.abs().sum() > 0 for g in gradients(loss, given[::2])), name
        assert all(g is None for g in gradients(loss, [head.weight, head.bias])), name
    assert not [*method.parameters()]
    shared = {*guess.tolist()} & {*out.labels().tolist()}
    assert method.describe(seen)["shared_classes"] == pytest.approx(len(shared) / C)


def test_the_terms_of_simnet_and_what_they_reach():
    head, out = one_head()
    method = made("simnet").eval()
    seen = method.seen(out)
    losses = method.losses(seen)
    assert tuple(losses) == method.terms
    d = method.discriminator(torch.cat([out.source.features, out.target.features])).split(B)
    torch.testing.assert_close(losses["domain"], domain_loss(*d))
    mu = class_means(method.embedding(out.source.features), out.labels()).detach()
    penalty = sum((float(mu[i] @ mu[j]) - (i == j)) ** 2 for i in range(C) for j in range(C)) / C
    assert losses["orthogonality"].item() == pytest.approx(ORTHOGONALITY * penalty, rel=1e-5)
    embedding, form = [*method.embedding.parameters()], [method.of_feature.weight, method.of_prototype.weight]
    discriminator = [*method.discriminator.parameters()]
    f_s, f_t = (view.features for view in out.both())
    source = CrossEntropy(method.context)(seen)
    for loss, reached, left in (
        (losses["domain"], [f_s, f_t, *discriminator], [*embedding, *form]),
        (losses["orthogonality"], [f_s, *embedding], [f_t, *form, *discriminator]),
        (source, [f_s, *embedding, *form], [f_t, *discriminator]),
    ):
        assert all(g is not None and g.abs().sum() > 0 for g in gradients(loss, reached))
        assert all(g is None for g in gradients(loss, [*left, head.weight]))
    cosines = F.normalize(mu, dim=1) @ F.normalize(mu, dim=1).T
    expected = float(cosines.sum() - cosines.trace()) / (C * (C - 1))
    assert method.describe(seen)["prototype_cosine"] == pytest.approx(expected, rel=1e-4)


def test_the_penalty_leaves_out_classes_that_were_never_met():
    _, out = one_head()
    method = made("simnet")
    out = labelled(out, [0, 0, 0, 0, 0])
    mu = method.embedding(out.source.features).mean(0).detach()
    penalty = (float(mu @ mu) - 1) ** 2
    seen = method.seen(out)
    assert method.losses(seen)["orthogonality"].item() == pytest.approx(ORTHOGONALITY * penalty, rel=1e-5)
    assert method.describe(seen)["prototype_cosine"] == 0


@pytest.mark.parametrize("name", BOTH)
def test_logits_learn_through_the_batch_part_of_the_prototypes(name):
    """At ρ of nearly nothing, kept prototypes are constants; a class that is met first has all of its gradient."""
    _, out = one_head()
    method = made(name, prototype_rate=1e-9)
    finished(method, method.seen(out))
    seen = method.seen(out)
    (grad,) = gradients(seen.prototypes.sum(), [out.source.features])
    assert grad.abs().max() < 1e-6
    assert gradients(CrossEntropy(method.context)(seen), [out.source.features])[0].abs().sum() > 0


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("source", [name for name in SOURCE_TERMS if SOURCE_TERMS[name].linear])
def test_augmentation_is_refused_in_one_line(config, here, source, name):
    assert not METHODS[name].linear
    refused = changed(config, tsa=False, method=name, source_term=source)
    message = f"{source} augments features before a linear head, but the source's logits of {name} are not linear"
    with pytest.raises(UserError, match=message) as caught:
        train_run(refused, here / "run", quiet=True)
    assert "\n" not in str(caught.value)
    assert not (here / "run").exists()


@pytest.mark.parametrize("name", BOTH)
def test_training_lowers_the_source_loss_and_the_network_predicts_alone(config, name):
    config = changed(config, tsa=False, method=name, steps=60)
    trainer = trainer_of(config)
    said = [trainer.step(describe=True) for _ in range(60)]
    assert said[-1]["ce"] < said[0]["ce"]
    assert all(math.isfinite(v) for v in said[-1].values() if isinstance(v, float))
    head, method = trainer.model.head, trainer.objective.method
    weight, bias = method.head_of(method.prototypes)
    assert torch.equal(head.weight, weight)
    assert torch.equal(head.bias, bias)
    x = np.load("source.npz")
    trainer.model.eval()
    with torch.no_grad():
        guess = trainer.model(torch.from_numpy(x["x"]).float())[1].argmax(1)
    assert (guess.numpy() == x["y"]).mean() > 0.8


@pytest.mark.parametrize("name", BOTH)
def test_prototypes_are_saved_and_a_run_goes_on_without_them_elsewhere(config, name):
    trainer = trainer_of(changed(config, tsa=False, method=name), steps=3)
    again, forgetful = resumed(trainer), resumed(trainer)
    forgetful.objective.method.met.fill_(False)
    for one in (trainer, again, forgetful):
        one.step()
    assert same(trainer.model, again.model.state_dict())
    assert not same(trainer.model, forgetful.model.state_dict())


@pytest.mark.parametrize("name", BOTH)
def test_estimators_take_them(here, name):
    x, target = np.load("source.npz"), np.load("target.npz")["x"]
    fit = tsadapt.DomainAdaptationClassifier(name, steps=150, bottleneck=8, random_state=0, device="cpu")
    assert fit.fit(x["x"], x["y"], X_target=target).score(x["x"], x["y"]) > 0.8
