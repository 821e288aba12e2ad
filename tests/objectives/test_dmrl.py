"""DMRL: what is mixed with what, what each term learns from, and what a second pass leaves alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.configs import changed, run_config
from tests.objectives.phases import resumed, same, trainer_of
from tests.objectives.test_alignment import gradients
from tests.objectives.test_methods import B, made, outputs
from torch.nn import functional as F

from tsadapt.core import domain_loss, reversal_coefficient
from tsadapt.objectives.base import METHODS
from tsadapt.training.setup import make_task, make_trainer


def problem(progress=0.5):
    """Outputs of one head, all mixtures seen, and the method without dropout."""
    net, out = outputs(heads=1, progress=progress)
    z_s, z_t = (net.heads[0](view.features) for view in out.both())
    out = replace(out, source=replace(out.source, logits=z_s), target=replace(out.target, logits=z_t))
    seen = []

    def network(x):
        seen.append(x)
        return x, net.heads[0](x)

    return net.heads[0], replace(out, network=network), seen, made("dmrl").eval()


def test_the_terms_are_those_of_the_docstring():
    head, out, seen, method = problem()
    losses = method.losses(out)
    assert tuple(losses) == method.terms
    source_mix, target_mix = method.mixtures(out)
    mixed = []
    for x, mix in zip(out.inputs, (source_mix, target_mix), strict=True):
        assert sorted(mix.partner.tolist()) == list(range(B))
        mixed.append(torch.stack([mix.share * x[i] + (1 - mix.share) * x[j] for i, j in enumerate(mix.partner)]))
    for x, expected in zip(seen, mixed, strict=True):
        torch.testing.assert_close(x, expected)
    z_s, z_t = head(mixed[0]), head(mixed[1])
    labels, share = out.labels(), source_mix.share
    ce = share * F.cross_entropy(z_s, labels) + (1 - share) * F.cross_entropy(z_s, labels[source_mix.partner])
    torch.testing.assert_close(losses["mixed_ce"], ce)
    z, share = out.target.logits, target_mix.share
    expected = (share * z + (1 - share) * z[target_mix.partner]).softmax(1)
    torch.testing.assert_close(losses["mixed_consistency"], (z_t.softmax(1) - expected).abs().mean())
    d_s, d_t = method.discriminator(mixed[0]), method.discriminator(mixed[1])
    domain = 0.5 * (F.softplus(-d_s).mean() + F.softplus(d_t).mean())
    torch.testing.assert_close(losses["mixed_domain"], domain)
    dann = made("dann").eval()
    torch.testing.assert_close(losses["domain"], dann.losses(out)["domain"])


def test_domain_smoothing_is_of_mixtures_too():
    _, out, _, method = problem()
    smooth = made("dmrl", domain_smoothing=0.1).eval()
    d_s, d_t = (method.discriminator(mix.inputs) for mix in method.mixtures(out))
    expected = domain_loss(d_s, d_t, smoothing=0.1)
    torch.testing.assert_close(smooth.losses(out)["mixed_domain"], expected)
    assert expected != method.losses(out)["mixed_domain"]


def test_each_domain_has_its_own_share_and_pairs():
    _, out, _, method = problem()
    source_mix, target_mix = method.mixtures(out)
    assert source_mix.share != target_mix.share
    assert not torch.equal(source_mix.partner, target_mix.partner)
    near = made("dmrl", mixup_alpha=1e6).mixtures(out)
    assert all(mix.share == pytest.approx(0.5, abs=0.01) for mix in near)


def test_what_the_terms_reach():
    """The consistency teaches both sides, as in the published code; the domain terms go against the features."""
    head, out, _, method = problem(progress=0.3)
    losses = method.losses(out)
    x_s, x_t = out.inputs  # the features, here
    d = method.discriminator.layers[0].weight
    for name, reached, left in [
        ("mixed_ce", [x_s, head.weight], [x_t, d]),
        ("mixed_consistency", [x_t, head.weight], [x_s, d]),
        ("mixed_domain", [x_s, x_t, d], [head.weight]),
    ]:
        assert all(grad is not None and grad.abs().sum() > 0 for grad in gradients(losses[name], reached)), name
        assert all(grad is None for grad in gradients(losses[name], left)), name
    (both,) = gradients(losses["mixed_consistency"], [out.target.logits])
    assert both.abs().sum() > 0
    source_mix, target_mix = method.mixtures(out)
    f = [mix.inputs for mix in (source_mix, target_mix)]
    straight = 0.5 * (F.softplus(-method.discriminator(f[0])).mean() + F.softplus(method.discriminator(f[1])).mean())
    for turned, plain in zip(
        gradients(losses["mixed_domain"], [x_s, x_t]), gradients(straight, [x_s, x_t]), strict=True
    ):
        torch.testing.assert_close(turned, -reversal_coefficient(0.3) * plain)


def test_a_second_look_at_the_discriminator_does_not_advance_the_reversal():
    """The published discriminator counts its own passes, two a batch, so its reversal rises twice as fast."""
    _, out, _, method = problem(progress=0.3)
    for _ in range(3):
        method.losses(out)
    assert method.alpha(out) == reversal_coefficient(0.3)
    _, start, _, method = problem(progress=0.0)
    terms = method.losses(start)
    for name in ("domain", "mixed_domain"):
        grads = gradients(terms[name], [*start.inputs, method.discriminator.layers[0].weight])
        assert (grads[0] == 0).all()
        assert (grads[1] == 0).all()
        assert grads[2].abs().sum() > 0  # from the first step on


def test_mixtures_are_normalised_as_the_rows_are(config):
    for apart in (True, False):
        trainer = trainer_of(changed(config, tsa=False, method="dmrl", separate_bn=apart))
        batch = trainer.batches.at(1)
        out, _ = trainer.forward(batch, 0.5)
        method, seen = trainer.objective.method, []
        network = out.network
        method.losses(replace(out, network=lambda x: (seen.append(len(x)), network(x))[1]))  # noqa: B023
        assert seen == ([16, 16] if apart else [32])
    assert METHODS["dmrl"].separate_bn


def test_the_second_pass_leaves_the_running_averages_and_other_draws_alone(config):
    ends = []
    for method in ("dmrl", "dann"):
        state = trainer_of(changed(config, tsa=False, method=method), steps=1).model.state_dict()
        ends.append({name: value for name, value in state.items() if "running" in name or "tracked" in name})
    assert ends[0]
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
    trainer = trainer_of(changed(config, tsa=False, method="dmrl"))
    out, _ = trainer.forward(trainer.batches.at(1), 0.5)
    before = out.generator().get_state()
    trainer.objective.method.losses(out)
    assert torch.equal(out.generator().get_state(), before)


def test_draws_are_of_the_step_and_resume(config):
    config = changed(config, method="dmrl")
    whole = trainer_of(config, steps=4)
    again = resumed(whole)
    shares = []
    for trainer in (whole, again):
        trainer.step()
        out, _ = trainer.forward(trainer.batches.at(trainer.at), trainer.progress)
        shares.append([mix.share for mix in trainer.objective.method.mixtures(out)])
    assert shares[0] == shares[1]
    assert same(whole.model, again.model.state_dict())
    whole.step()
    out, _ = whole.forward(whole.batches.at(whole.at), whole.progress)
    assert [mix.share for mix in whole.objective.method.mixtures(out)] != shares[0]


def test_small_images_are_mixed_as_pixels(here):
    rng = np.random.default_rng(0)
    for file in ("s", "t"):
        np.savez(f"{file}.npz", x=rng.integers(0, 256, (30, 16, 16), dtype=np.uint8), y=np.arange(30) % 3)
    trainer = make_trainer(make_task(run_config("s.npz", "t.npz", method="dmrl", steps=4, batch_size=8, device="cpu")))
    trainer.fill_memory()
    out, _ = trainer.forward(trainer.batches.at(1), 0.5)
    assert out.inputs[0].dtype == torch.uint8
    mix, _ = trainer.objective.method.mixtures(out)
    pixels = out.inputs[0].double()
    torch.testing.assert_close(
        mix.inputs.double(), mix.share * pixels + (1 - mix.share) * pixels[mix.partner], rtol=1e-5, atol=1e-4
    )
    assert all(torch.isfinite(torch.tensor(value)) for value in trainer.step().values())


def test_training_learns_the_mixtures(config):
    trainer = make_trainer(make_task(changed(config, tsa=False, method="dmrl", steps=150)))
    trainer.fill_memory()
    said = [trainer.step() for _ in range(150)]

    def mean(name, rows):
        return sum(one[name] for one in rows) / len(rows)

    assert mean("mixed_ce", said[-30:]) < 0.8 * mean("mixed_ce", said[:30])
    assert mean("ce", said[-30:]) < 0.5 * mean("ce", said[:30])
