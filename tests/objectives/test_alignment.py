"""Methods that add a distance between the domains or a pull at the features: values, gradients, what they leave."""

import pytest
import torch
from tests.configs import changed
from tests.objectives.test_methods import B, context, made, outputs

from tsadapt.core import covariance_distance, joint_mmd, multi_kernel_mmd
from tsadapt.errors import UserError
from tsadapt.objectives.base import METHODS
from tsadapt.training.setup import make_task, make_trainer


def gradients(loss, tensors):
    return torch.autograd.grad(loss, tensors, retain_graph=True, allow_unused=True)


def sized(b_s, b_t):
    made_for = context()
    return type(made_for)(**{**vars(made_for), "batch_sizes": (b_s, b_t)})


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
