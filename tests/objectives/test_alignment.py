"""Methods that add a distance between the domains or a pull at the features: values, gradients, what they leave."""

from dataclasses import replace

import pytest
import torch
from tests.configs import changed
from tests.objectives.test_methods import B, C, K, context, made, outputs
from torch import nn

from tsadapt.core import (
    covariance_distance,
    joint_mmd,
    margin_disparity_loss,
    multi_kernel_mmd,
    nuclear_norm,
    reversal_coefficient,
    reverse_gradient,
)
from tsadapt.errors import UserError
from tsadapt.objectives.base import METHODS
from tsadapt.training.setup import make_task, make_trainer


def gradients(loss, tensors):
    return torch.autograd.grad(loss, tensors, retain_graph=True, allow_unused=True)


def sized(b_s, b_t):
    return replace(context(), batch_sizes=(b_s, b_t))


@pytest.mark.parametrize("estimator", ["unbiased", "linear"])
def test_dan_is_the_mmd_of_the_features(estimator):
    net, out = outputs(heads=1)
    loss = made("dan", mmd_estimator=estimator).losses(out)["mmd"]
    f_s, f_t = (view.features for view in out.both())
    assert torch.equal(loss, multi_kernel_mmd(f_s, f_t, estimator))
    assert all(grad.abs().sum() > 0 for grad in gradients(loss, (f_s, f_t)))
    assert all(grad is None for grad in gradients(loss, [*net.parameters()]))  # predictions have no part in it
    assert not [*made("dan").parameters()]


@pytest.mark.parametrize("estimator", ["unbiased", "linear"])
def test_jan_is_the_mmd_of_features_and_predictions(estimator):
    net, out = outputs(heads=1)
    loss = made("jan", mmd_estimator=estimator).losses(out)["joint_mmd"]
    views = out.both()
    expected = joint_mmd(*(v.features for v in views), *(v.logits.softmax(1) for v in views), estimator=estimator)
    assert torch.equal(loss, expected)
    wanted = [views[0].features, views[1].features, net.heads[0].weight]
    assert all(grad.abs().sum() > 0 for grad in gradients(loss, wanted))  # through both kernels
    assert not [*made("jan").parameters()]


def test_coral_is_the_distance_of_the_covariances():
    net, out = outputs(heads=1)
    loss = made("coral").losses(out)["coral"]
    f_s, f_t = (view.features for view in out.both())
    assert torch.equal(loss, covariance_distance(f_s, f_t))
    assert all(grad.abs().sum() > 0 for grad in gradients(loss, (f_s, f_t)))
    assert all(grad is None for grad in gradients(loss, [*net.parameters()]))


@pytest.mark.parametrize("name", ["dan", "jan", "coral"])
def test_batches_of_one_row_are_refused_before_training(name):
    with pytest.raises(UserError, match="needs 2 rows or more of each domain in a batch, received 8 and 1"):
        METHODS[name](sized(8, 1))
    METHODS[name](sized(2, B))


@pytest.mark.parametrize("name", ["dan", "jan"])
def test_neighbours_need_equal_batches(name, config):
    with pytest.raises(UserError, match="received 8 rows of the source and 4 of the target"):
        METHODS[name](sized(8, 4), mmd_estimator="linear")
    unequal = changed(config, method=name, mmd_estimator="linear", batch_size=8, target_batch_size=4)
    with pytest.raises(UserError, match="target_batch_size"):
        make_trainer(make_task(unequal))
    equal = make_trainer(make_task(changed(unequal, target_batch_size=8)))
    equal.fill_memory()
    assert set(equal.step()) == {"tsa", "mi", *METHODS[name].terms}


@pytest.mark.parametrize("step", [1.0, 0.3])
def test_afn_pulls_both_domains_and_nothing_else(step):
    net, out = outputs(heads=1)
    method = made("afn", norm_step=step)
    loss = method.losses(out)["norm"]
    assert loss.item() == pytest.approx(2 * 0.05 * step**2)
    features = [view.features for view in out.both()]
    for f, grad in zip(features, gradients(loss, features), strict=True):
        torch.testing.assert_close(grad, -0.05 * 2 * step * f.detach() / f.detach().norm(dim=1, keepdim=True) / B)
    assert all(grad is None for grad in gradients(loss, [*net.parameters()]))
    assert not [*method.parameters()]
    said = method.describe(out)
    assert said["source_feature_norm"] == pytest.approx(features[0].norm(dim=1).mean().item())
    assert said["target_feature_norm"] == pytest.approx(features[1].norm(dim=1).mean().item())


def test_afn_makes_features_longer(config):
    norms = {}
    for weight in (0.0, 20.0):
        trainer = make_trainer(make_task(changed(config, tsa=False, method="afn", term_weight={"norm": weight})))
        norms[weight] = [trainer.step(describe=True) for _ in range(20)][-1]
    for name in ("source_feature_norm", "target_feature_norm"):
        assert norms[20.0][name] > 1.2 * norms[0.0][name]


def one_head(progress=0.4, seed=0):
    """Features and one head, whose logits are the combined ones."""
    net, out = outputs(progress=progress, heads=1, seed=seed)
    source, target = (replace(view, logits=net.heads[0](view.features)) for view in out.both())
    return net.heads[0], replace(out, source=source, target=target)


def test_nwd_is_the_head_on_reversed_features():
    """In value and in every gradient what a second pass behind a gradient reversal gives."""
    head, out = one_head()
    method = made("nwd")
    loss = method.losses(out)["nuclear"]
    f_s, f_t = (view.features for view in out.both())
    alpha = method.alpha(out)
    assert alpha == reversal_coefficient(0.4)
    p_s, p_t = (head(reverse_gradient(f, alpha)).softmax(1) for f in (f_s, f_t))
    expected = (nuclear_norm(p_t) - nuclear_norm(p_s)) / B
    torch.testing.assert_close(loss, expected)
    wanted = [f_s, f_t, head.weight, head.bias]
    for ours, theirs in zip(gradients(loss, wanted), gradients(expected, wanted), strict=True):
        assert ours.abs().sum() > 0
        torch.testing.assert_close(ours, theirs)
    assert method.describe(out) == {"alpha": alpha}
    assert not [*method.parameters()]


def test_the_head_and_the_features_of_nwd_work_against_each_other():
    """A step of the head lowers ‖P_t‖_* against ‖P_s‖_*, a step of the features raises it."""
    head, out = one_head(progress=1.0)
    loss = made("nwd").losses(out)["nuclear"]
    f_s, f_t = (view.features for view in out.both())
    g_s, g_t, g_w = gradients(loss, [f_s, f_t, head.weight])

    def value(s, t, w):
        p_s, p_t = ((f @ w.T + head.bias).softmax(1) for f in (s, t))
        return float(nuclear_norm(p_t) - nuclear_norm(p_s)) / B

    with torch.no_grad():
        now = value(f_s, f_t, head.weight)
        assert value(f_s, f_t, head.weight - 0.1 * g_w) < now
        assert value(f_s - g_s, f_t - g_t, head.weight) > now


def test_nwd_at_the_start_leaves_the_extractor_alone():
    head, out = one_head(progress=0.0)
    loss = made("nwd").losses(out)["nuclear"]
    p = [view.logits.softmax(1) for view in out.both()]
    plain = (nuclear_norm(p[1]) - nuclear_norm(p[0])) / B
    for view in out.both():
        (turned,), (straight,) = (gradients(one, [view.features]) for one in (loss, plain))
        assert turned.abs().max() <= 1e-6 * straight.abs().max()  # but for rounding (`reverse_at`)
    assert torch.equal(gradients(loss, [head.weight])[0], gradients(plain, [head.weight])[0])


@pytest.mark.parametrize("gamma", [4.0, 2.0])
def test_mdd_is_the_disparity_of_its_own_head_on_reversed_features(gamma):
    head, out = one_head()
    method = made("mdd", margin_factor=gamma).eval()
    loss = method.losses(out)["disparity"]
    alpha = method.alpha(out)
    assert alpha == pytest.approx(0.1 * reversal_coefficient(0.4))
    f_s, f_t = (view.features for view in out.both())
    y_s, y_t = (view.logits.argmax(1) for view in out.both())
    plain = margin_disparity_loss(method.second_head(f_s), y_s, method.second_head(f_t), y_t, gamma)
    torch.testing.assert_close(loss, plain)
    features, own = [f_s, f_t], [*method.parameters()]
    for turned, straight in zip(gradients(loss, features), gradients(plain, features), strict=True):
        assert straight.abs().sum() > 0
        torch.testing.assert_close(turned, -alpha * straight)
    for turned, straight in zip(gradients(loss, own), gradients(plain, own), strict=True):
        assert straight.abs().sum() > 0
        torch.testing.assert_close(turned, straight)
    assert all(grad is None for grad in gradients(loss, [*head.parameters()]))  # argmax has none


def test_mdd_with_a_second_head_that_knows_nothing():
    """γ log C − log(1 − 1/C) with 31 classes and γ = 4."""
    method = METHODS["mdd"](context(classes=31))
    for layer in (0, 3):
        nn.init.zeros_(method.second_head[layer].weight)
        nn.init.zeros_(method.second_head[layer].bias)
    _, out = outputs(heads=1)
    wide = [replace(view, logits=torch.randn(B, 31)) for view in out.both()]
    assert method.losses(replace(out, source=wide[0], target=wide[1]))["disparity"].item() == pytest.approx(13.76874)


def test_the_second_head_of_mdd_and_how_strongly_the_features_work_against_it():
    method = made("mdd")
    assert [tuple(p.shape) for p in method.parameters()] == [(8, K), (8,), (C, 8), (C,)]
    _, end = one_head(progress=1.0)
    assert method.alpha(end) == pytest.approx(0.1, abs=1e-4)
    assert made("mdd", reversal="iteration").alpha(end) == pytest.approx(0.04621, abs=1e-5)  # 1000 steps
    _, start = one_head(progress=0.0)
    first, f_t = method.second_head[0].weight, start.target.features
    g_first, g_f = gradients(method.losses(start)["disparity"], [first, f_t])
    assert g_first.abs().sum() > 0
    assert (g_f == 0).all()


def test_the_second_head_of_mdd_is_kept_over_a_restart():
    _, out = one_head()
    one, other = made("mdd").eval(), METHODS["mdd"](context()).eval()
    assert one.losses(out)["disparity"] != other.losses(out)["disparity"]
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.losses(out)["disparity"], other.losses(out)["disparity"])


@pytest.mark.parametrize("name", ["dan", "jan", "coral", "afn", "nwd", "mdd"])
def test_one_pass_through_the_heads(name):
    """Another pass would draw other dropout masks, and count its batch in running averages once more."""
    _, out = one_head()

    def again(features):
        raise AssertionError("a second pass through the heads")

    assert all(value.isfinite() for value in made(name).losses(replace(out, classify=again)).values())


@pytest.mark.parametrize("name", ["dan", "jan", "coral", "afn", "nwd", "mdd"])
def test_features_that_do_not_learn_are_no_error(name):
    """Where the features are the inputs, only heads learn."""
    _, out = outputs(heads=1, grad=False)
    method = made(name)
    assert method.losses(out)[METHODS[name].terms[0]].isfinite()
