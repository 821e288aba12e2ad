"""ADDA: which network each stage moves, what the discriminator sees, and exact resume across the stages."""

import math

import pytest
import torch
from tests.configs import changed
from tests.objectives.phases import recorded, resumed, same, trainer_of
from torch import nn

from tsadapt.core import domain_loss
from tsadapt.errors import UserError
from tsadapt.training.setup import make_task
from tsadapt.training.trainer import Iteration


@pytest.fixture
def adda(config):
    """Two steps on the source, then six against the discriminator."""
    return changed(config, method="adda", steps=8, pretraining=0.25)


def test_stages_move_what_they_should(adda, monkeypatch):
    trainer = trainer_of(adda)
    seen = recorded(trainer, monkeypatch)
    for _ in range(4):
        trainer.step()
    source = ("tsa", "mi")
    adversarial = [
        (("domain",), "discriminator", {"discriminator"}),
        ((*source, "inverted"), "target", {"extractor"}),
    ]
    assert seen == [(source, "", {"extractor", "heads"})] * 2 + adversarial * 2


@pytest.mark.parametrize("settings", [{}, {"adversarial_rate": 0.5}])
def test_the_second_stage_learns_more_slowly(adda, settings):
    trainer = trainer_of(changed(adda, **settings))
    factor = settings.get("adversarial_rate", 0.2)
    for _ in range(4):
        trainer.step()
        rates = {phase: [group["lr"] for group in one.param_groups] for phase, one in trainer.optimizers.items()}
        assert rates["target"] == rates["discriminator"] == pytest.approx([factor * rate for rate in rates[""]])


def test_the_source_keeps_the_extractor_of_its_stage(adda):
    trainer = trainer_of(adda, steps=2)
    method = trainer.objective.method
    assert not method.copied
    pretrained = {k: v.clone() for k, v in trainer.extractor.state_dict().items()}
    head = trainer.model.head.weight.clone()
    for _ in range(3):
        trainer.step()
    assert method.copied
    assert same(method.source_extractor, pretrained)  # running averages too
    assert not same(trainer.extractor, pretrained)
    assert torch.equal(trainer.model.head.weight, head)
    assert not any(p.requires_grad for p in method.source_extractor.parameters())


def test_each_domain_goes_through_its_own_extractor(adda):
    trainer = trainer_of(adda, steps=4)
    method, batch = trainer.objective.method, trainer.batches.at(5)
    layer = trainer.model.bottleneck[1]
    before = layer.running_mean.clone()
    source, target = Iteration(trainer, batch, describe=False).forward(method.source_extractor).both()
    after, momentum = layer.running_mean.clone(), layer.momentum
    with torch.no_grad():
        f_s = trainer.model.extracted(batch.x_s, *method.source_extractor)
        x_t = trainer.model.scaling(batch.x_t).float()
        torch.testing.assert_close(source.features, f_s)
        torch.testing.assert_close(target.features, trainer.model.bottleneck(x_t))
        torch.testing.assert_close(source.logits, trainer.model.head(f_s))
        # The network's running averages are those of the target alone.
        mean = trainer.model.bottleneck[0](x_t).mean(0)
        torch.testing.assert_close(after, (1 - momentum) * before + momentum * mean)
    assert not source.features.requires_grad
    assert target.features.requires_grad


def test_the_discriminator_learns_and_the_extractor_works_against_it(adda, monkeypatch):
    """Its own step lowers D's loss, and by that of F_t, which follows, D takes the target for the source more often."""
    trainer = trainer_of(changed(adda, momentum=0.0, weight_decay=0.0, tsa=False, lr=0.5), steps=3)
    method, minimize, seen = trainer.objective.method, Iteration.minimize, []
    method.discriminator.eval()  # no dropout: the same function twice
    batch = trainer.batches.at(4)

    def values():
        with torch.no_grad():
            out, _ = trainer.forward(batch, 0.5, method.source_extractor)
            d_s, d_t = method.discriminator(method.mapped(out)).split(16)
            return domain_loss(d_s, d_t).item(), d_t.mean().item()

    def watched(self, *args, **kwargs):
        before = values()
        minimize(self, *args, **kwargs)
        seen.append((before, values()))

    monkeypatch.setattr(Iteration, "minimize", watched)
    method.update(Iteration(trainer, batch, describe=False))
    (d_before, d_after), (t_before, t_after) = seen
    assert d_after[0] < d_before[0]
    assert t_after[1] > t_before[1]


def test_a_discriminator_that_knows_nothing(adda):
    trainer = trainer_of(adda, steps=2)
    last = trainer.objective.method.discriminator.layers[-1]
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    for group in trainer.optimizers["discriminator"].param_groups:
        group["params"] = []  # it stays so
    said = trainer.step(describe=True)
    assert said["domain"] == pytest.approx(math.log(2))
    assert said["inverted"] == pytest.approx(math.log(2))
    assert said["discriminator_accuracy"] == 0.5


@pytest.mark.parametrize("discriminated", ["logits", "features"])
def test_what_the_discriminator_looks_at(adda, discriminated):
    trainer = trainer_of(changed(adda, discriminated=discriminated), steps=3)
    method = trainer.objective.method
    assert method.discriminator.layers[0].in_features == (3 if discriminated == "logits" else 8)
    out, _ = trainer.forward(trainer.batches.at(4), 0.5)
    assert torch.equal(method.mapped(out), torch.cat([getattr(view, discriminated) for view in out.both()]))


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_resume_in_and_between_the_stages(adda, stop):
    whole = trainer_of(adda, steps=stop)
    again = resumed(whole)
    for _ in range(4):
        assert whole.step(describe=True) == again.step(describe=True)
    assert same(again.model, whole.model.state_dict())
    assert same(again.objective, whole.objective.state_dict())


def test_tsa_moves_nothing_after_the_first_stage_and_target_terms_do(adda):
    """Whatever the source term's weight is then, the networks stay the same."""
    ends = []
    for later in ({}, {"tsa": 5.0}, {"mi": 5.0}):
        trainer = trainer_of(adda, steps=2)
        trainer.config = changed(trainer.config, term_weight=later)
        for _ in range(3):
            trainer.step()
        ends.append(trainer.model.state_dict())
    first, tsa, mi = ends
    assert all(torch.equal(first[k], tsa[k]) for k in first)
    assert not all(torch.equal(first[k], mi[k]) for k in first)


def test_all_of_it_pretraining_is_source_only(adda):
    a, b = (
        trainer_of(changed(adda, method=name, pretraining=1.0, separate_bn=True), steps=8)
        for name in ("adda", "source-only")
    )
    assert not a.objective.method.copied
    assert same(a.model, b.model.state_dict())


def test_a_network_without_an_extractor_is_refused(adda):
    with pytest.raises(UserError, match=r"its features are its inputs\. Use the network mlp"):
        trainer_of(changed(adda, network="linear", bottleneck=None))


def test_head_steps_are_refused(adda):
    with pytest.raises(UserError, match="adda trains on the source first by itself: leave out head_steps"):
        make_task(changed(adda, head_steps=5))
